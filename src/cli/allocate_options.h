// The flags of `walsh quantize` that let walsh choose the formats, and what it then tells.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "api/allocation.h"
#include "io/json.h"

namespace walsh::cli {

class AllocateFlags {
 public:
  void add_to(CLI::App& command);

  // --bpw or --size is there.
  bool given() const { return bits_ != 0 || !size_.empty(); }
  // Throws usage if another flag of this kind is there without them.
  void refuse_without_target() const;
  // The files that it reads, and those that it will write.
  std::vector<std::string> inputs() const;
  std::vector<std::string> outputs() const;
  // The format that stands for all in the base recipe.
  std::string first_candidate() const;
  // Chooses; a bar or lines on standard error tell how far it is.
  Allocation allocate(const std::string& folder, const Recipe& base,
                      const CalibrationRequest& calibration, ThreadPool& pool) const;

 private:
  bool knows_sensitivity() const;

  std::vector<const CLI::Option*> refinements_;
  double bits_ = 0;
  std::vector<std::string> candidates_;
  std::string size_, text_, sensitivity_, probe_ = "encode";
  int64_t tokens_ = 4096, evaluations_ = 16;
};

// A table of the tensors and what was predicted and measured.
std::string allocation_text(const Allocation& allocation);
// The same as JSON, for --json and a recipe's `about`.
Json allocation_json(const Allocation& allocation);

}  // namespace walsh::cli
