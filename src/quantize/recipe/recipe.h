// A recipe says which format, rotation and balancing each weight of a checkpoint gets.
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
  std::string pattern;             // it is "re:REGEX" (PCRE2 syntax) or an exact name, as given
  std::optional<Regex> regex;      // it is searched in the name; an exact name has none
  const Format* format = nullptr;  // null keeps the source type
  std::string note = {};           // it is the about_name of the format's name as given

  // An exact name may leave out ".weight". `steps` bounds the work of all rules on all names.
  // Throws limit naming the rule where they are spent.
  bool matches(const std::string& tensor, StepBudget& steps) const;
};

// Matching a recipe with a checkpoint may take this many steps, which is a second or two. A hundred
// patterns on the names of ten thousand tensors take half of it.
inline constexpr uint64_t kRuleSteps = 200'000'000;

// Parses "re:PATTERN=TYPE" or "NAME=TYPE" (--override). Throws usage.
TensorRule parse_override(std::string_view text);
// Parses "re:PATTERN" or "NAME" (--ignore). Throws usage.
TensorRule parse_ignore(std::string_view text);

// Says where activations are rotated.
enum class RotateAt : uint8_t {
  input,  // the input of every matrix is rotated at run time
  // The residual stream is rotated offline, and at run time only the input of down (fold.h).
  residual,
  both  // as input, and the outputs of linear layers are rotated back at run time
};
RotateAt parse_rotate_at(std::string_view name);  // it throws usage

// Identifies the text that activations were measured on (docs/calibration.md).
struct CalibrationText {
  std::string checksum;  // This is the checksum of the text.
  int64_t tokens = 0, window = 0;
  // This is the checksum of the measurements at outputs; it is empty if there are none.
  std::string curvature = {};
};

struct Recipe {
  const Format* type = nullptr;        // every linear weight gets it
  const Format* embed_type = nullptr;  // null keeps the source type
  const Format* head_type = nullptr;   // null keeps the source type; a tied head is the embedding
  bool head_type_chosen = false;       // the user named it; it is no default
  std::vector<TensorRule> rules;       // they are tried before the types above
  RotationKind rotation = RotationKind::hadamard;
  RotateAt rotate = RotateAt::input;
  int block = 0;  // The rotation has this block; 0: the format's own (128 for qr).
  bool signs = true;
  uint32_t seed = 42;
  bool balance = true;
  EncodeOptions encode;
  std::optional<CalibrationText> calibration;  // Compressor::calibrate follows
  std::vector<std::string> notes;              // each is the about_name of a type's name as given
};

// Throws usage unless the parts fit together: the block is a power of two from 32 to 1024, a type
// is given, and there is a rotation if it is to be folded.
void check_recipe(const Recipe& recipe);

// Returns the notes of a recipe and its rules, each once.
std::vector<std::string> name_notes(const Recipe& recipe);

// Returns the type of embedding and head beside layers of `type`, if the user names none. It has
// eight bits, which cost nothing that could be measured beside coded layers
// (docs/formats/README.md). Returns null if the layers are not coded, since everything stays as it
// is then.
const Format* default_ends(const Format& type);

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
