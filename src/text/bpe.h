// Encodes a word by byte-pair encoding (Sennrich et al. 2016), as tokenizer.json's model "BPE"
// defines it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/step_budget.h"
#include "io/json.h"
#include "io/keyed_hash.h"
#include "text/pair_table.h"
#include "text/vocabulary.h"

namespace walsh {

// Holds a model, which is read once. Const use is thread-safe.
class BpeModel {
 public:
  // Throws bad_input for a malformed model, for other model types and for dropout, sub-word
  // prefixes and suffixes.
  BpeModel(const Json& model, std::string_view where);

  // encode() reuses this memory from word to word; each thread needs one.
  struct Workspace {
    struct Symbol {
      int32_t id;              // -1 means that it was merged into its left neighbour
      int32_t previous, next;  // -1 means that there is none
    };
    struct Candidate {
      uint64_t order;  // it has the rank, then the position; the smallest is merged first
      int32_t result;
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

  // Appends the ids of a word (valid UTF-8) to `ids`. Takes O(n log n) in its length, counted in
  // `steps`. Throws bad_input for an unknown character if the vocabulary lacks the unk_token.
  void encode(std::string_view word, Workspace& workspace, StepBudget& steps,
              std::vector<int32_t>& ids) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }
  Vocabulary& vocabulary() { return vocabulary_; }

 private:
  void read_merges(const Json& merges);
  void read_characters();
  int32_t character_id(char32_t code) const;
  void split_characters(std::string_view word, Workspace& workspace) const;
  bool append_bytes(std::string_view character, Workspace& workspace) const;
  void merge_symbols(Workspace& workspace, StepBudget& steps) const;
  void push_candidate(Workspace& workspace, int32_t left) const;

  std::string where_;
  Vocabulary vocabulary_;
  PairTable merges_;
  // Each one-character token has its id; -1 means that there is none.
  std::array<int32_t, 0x800> low_characters_;
  std::unordered_map<char32_t, int32_t, IntegerHash> high_characters_;
  std::array<int32_t, 256> byte_ids_;  // they are the ids of <0xNN>; -1 means that there is none
  int32_t unk_id_ = -1;                // -1 means that the vocabulary lacks it
  bool has_unk_ = false, fuse_unk_ = false, byte_fallback_ = false, ignore_merges_ = false;
};

}  // namespace walsh
