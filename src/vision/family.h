// Reads the vision part of config.json for each family that has one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "io/json.h"
#include "text/tokenizer.h"
#include "vision/preprocess.h"
#include "vision/tower_desc.h"

namespace walsh::vision {

inline constexpr int32_t kNoToken = -1;

// Says how an image stands in a prompt.
struct PromptForm {
  int32_t placeholder = kNoToken;  // templates write this token
  std::string text;                // its text is replaced with this before a prompt is tokenized
  int32_t image = kNoToken;        // it stands for each row
  // `begin` stands in front of the rows, `row_end` behind each row of the grid, and `end` behind
  // all. Where both of the latter would follow each other, `end` replaces the last `row_end`.
  int32_t begin = kNoToken, row_end = kNoToken, end = kNoToken;
  bool bidirectional = false;
  bool axes = false;  // the rope of the text has three axes (ImageEmbedding::grid_columns)
};

struct VisionModel {
  TowerDesc tower;
  PreprocessRule preprocess;
  PromptForm prompt;
};

// Holds the files that a family reads.
struct VisionFiles {
  const Json& config;     // it is that of the whole model
  const Json& processor;  // it describes how images are processed
  const Tokenizer& tokenizer;
  std::string where;  // messages name the config by this
  std::string processor_where;
};

struct VisionFamily {
  std::string_view model_type;  // config.json has it for the whole model
  VisionModel (*read)(const VisionFiles& files);
};

// Returns null for a model whose images are not supported.
const VisionFamily* find_vision_family(std::string_view model_type);

VisionModel read_mistral3(const VisionFiles& files);
VisionModel read_gemma3(const VisionFiles& files);
VisionModel read_qwen3_vl(const VisionFiles& files);
VisionModel read_qwen35(const VisionFiles& files);

// Reads the part of config.json that describes the tower: sizes with defaults of transformers.
class TowerReader {
 public:
  explicit TowerReader(const VisionFiles& files);

  int64_t size(const char* key, int64_t fallback, int64_t most = 1 << 20) const;
  double number(const char* key, double fallback) const;
  Activation activation(const char* key, const char* fallback) const;
  // Returns the numbers of layers of a list, which have to ascend.
  std::vector<int64_t> layers(const char* key, const std::vector<int64_t>& fallback,
                              int64_t count) const;
  // Returns rope_theta, of rope_parameters or beside them.
  double rope_theta(double fallback) const;
  // Fills in width, heads, hidden size, layers and the patch from the usual keys, and checks that
  // heads divide the width. Images have three channels.
  void read_sizes(TowerDesc& tower, int64_t width, int64_t hidden, int64_t layers, int64_t heads,
                  int64_t patch) const;
  [[noreturn]] void refuse(const std::string& key, const std::string& reason) const;

 private:
  const Json& object_;
  std::string where_;
};

// Returns the id of a token that config.json of the whole model has under a key.
int32_t token_of(const VisionFiles& files, const char* key, int64_t fallback);
// Returns the id of a token that the family writes for images. Throws bad_input if there is none.
int32_t image_token(const VisionFiles& files, std::string_view text);

}  // namespace walsh::vision
