// What to do with each weight of a checkpoint: format, rotation, balancing.
#pragma once

#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "formats/format.h"
#include "quantize/encoder.h"
#include "rotate/rotation.h"

namespace walsh {

// A rule for the tensors whose name it matches. The first matching rule of a recipe wins.
struct TensorRule {
  std::string pattern;              // as given: "re:REGEX" or an exact name
  std::optional<std::regex> regex;  // searched in the name; empty for an exact name
  const Format* format = nullptr;   // null: keep the source type

  // An exact name may leave out ".weight".
  bool matches(const std::string& tensor) const;
};

// "re:PATTERN=TYPE" or "NAME=TYPE" (--override). Throws usage.
TensorRule parse_override(std::string_view text);
// "re:PATTERN" or "NAME" (--ignore). Throws usage.
TensorRule parse_ignore(std::string_view text);

struct Recipe {
  const Format* type = nullptr;        // of every linear weight
  const Format* embed_type = nullptr;  // null: keep the source type
  const Format* head_type = nullptr;   // null: keep the source type; a tied head is the embedding
  std::vector<TensorRule> rules;       // tried before the types above
  RotationKind rotation = RotationKind::hadamard;
  int block = 0;  // rotation block; 0: the format's own (128 for qr)
  bool signs = true;
  uint32_t seed = 42;
  bool balance = true;
  EncodeOptions encode;
};

// Checks the combination (block a power of two 32..1024, a type given). Throws usage.
void check_recipe(const Recipe& recipe);

// The rotation of pass `pass` of a tensor of `format` that reads site number `site`.
Rotation rotation_for(const Recipe& recipe, const Format& format, int site, int pass);

// One line of JSON that names everything that decides the bytes; stored in the file.
std::string recipe_json(const Recipe& recipe);

}  // namespace walsh
