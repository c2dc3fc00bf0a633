// A recipe says what to do with each weight of a checkpoint: format, rotation, balancing.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/regex.h"
#include "codec/encode/options.h"
#include "codec/format.h"
#include "rotate/rotation.h"

namespace walsh {

// A rule applies to the tensors whose name it matches. The first matching rule of a recipe wins.
struct TensorRule {
  std::string pattern;             // as given: "re:REGEX" (PCRE2 syntax) or an exact name
  std::optional<Regex> regex;      // searched in the name; empty for an exact name
  const Format* format = nullptr;  // null: keep the source type
  std::string note = {};           // about_name of the format's name as given

  // An exact name may leave out ".weight". `steps` bounds the work of all rules on all names;
  // throws limit naming the rule where they are spent.
  bool matches(const std::string& tensor, StepBudget& steps) const;
};

// Matching a recipe with a checkpoint may take this many steps: a second or two. A hundred patterns
// on the names of ten thousand tensors take half of it.
inline constexpr uint64_t kRuleSteps = 200'000'000;

// Parses "re:PATTERN=TYPE" or "NAME=TYPE" (--override). Throws usage.
TensorRule parse_override(std::string_view text);
// Parses "re:PATTERN" or "NAME" (--ignore). Throws usage.
TensorRule parse_ignore(std::string_view text);

// Says where activations are rotated.
enum class RotateAt : uint8_t {
  input,     // at the input of every matrix, at run time
  residual,  // in the residual stream, offline; at run time only the input of down (fold.h)
  both       // as input, and the outputs of linear layers are rotated back at run time
};
RotateAt parse_rotate_at(std::string_view name);  // throws usage

// Identifies the text that activations were measured on (docs/calibration.md).
struct CalibrationText {
  std::string checksum;  // of the text
  int64_t tokens = 0, window = 0;
  std::string curvature = {};  // checksum of what was measured of outputs; empty: nothing
};

struct Recipe {
  const Format* type = nullptr;        // of every linear weight
  const Format* embed_type = nullptr;  // null: keep the source type
  const Format* head_type = nullptr;   // null: keep the source type; a tied head is the embedding
  bool head_type_chosen = false;       // the user named it; it is no default
  std::vector<TensorRule> rules;       // tried before the types above
  RotationKind rotation = RotationKind::hadamard;
  RotateAt rotate = RotateAt::input;
  int block = 0;  // rotation block; 0: the format's own (128 for qr)
  bool signs = true;
  uint32_t seed = 42;
  bool balance = true;
  EncodeOptions encode;
  std::optional<CalibrationText> calibration;  // Compressor::calibrate follows
  std::vector<std::string> notes;              // about_name of the types' names as given
};

// Checks the combination (block a power of two 32..1024, a type given, a rotation to fold). Throws
// usage.
void check_recipe(const Recipe& recipe);

// Returns the notes of a recipe and its rules, each once.
std::vector<std::string> name_notes(const Recipe& recipe);

// Returns the profile of a format that an effort calls for: fast trellis codes have
// two state bits less.
const Format& format_at(const Format& format, Effort effort);

// Returns the rotation of pass `pass` of a tensor of `format` that reads the activation of this
// name.
Rotation rotation_for(const Recipe& recipe, const Format& format, std::string_view activation,
                      int pass);

std::string_view rotate_at_name(RotateAt place);

// Returns the rotation that RotateAt::residual folds, or that of outputs, with the recipe's own
// seed. Folded blocks cost nothing at run time: they are as large as possible unless the recipe
// says otherwise.
Rotation fold_rotation(const Recipe& recipe);

// Returns one line of JSON that names everything that decides the bytes; it is stored in the file.
std::string recipe_json(const Recipe& recipe);

}  // namespace walsh
