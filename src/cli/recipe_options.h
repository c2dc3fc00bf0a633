// Defines flags for compression, which `quantize` and, with --quantize, every command that runs a
// model have.
#pragma once

#include <string>
#include <vector>

#include "cli/flags.h"
#include "quantize/recipe/recipe.h"

namespace walsh::cli {

class RecipeOptions {
 public:
  // `type_flag` is "--type" or "--quantize".
  void add_to(Command& command, const std::string& type_flag);

  // Returns whether a type or a saved recipe (--recipe) was given.
  bool given() const { return !type_.empty() || !file_.empty(); }
  const std::string& file() const { return file_; }  // --recipe names it; it may be empty.
  // Throws usage for an unknown type or a combination that makes no sense, bad_input or io for a
  // recipe file.
  Recipe recipe(const std::string& output_format = "gguf") const;
  // Returns the recipe with `type` in place of --type, from which an allocation starts.
  Recipe recipe_of(const std::string& type, const std::string& output_format = "gguf") const;
  // Returns notes on given flags that have no effect with any type of the recipe.
  std::vector<std::string> idle_flags(const Recipe& recipe) const;
  // Throws usage if a flag that needs a type was given without one.
  void refuse_without_type() const;
  // Returns whether --rotate weights was given, which concerns how a model runs and needs no type.
  bool rotates_weights() const { return rotate_ == kRotateWeights; }

 private:
  static constexpr const char* kRotateWeights = "weights";

  bool is_refinement(const Flag& flag) const;  // that was given
  std::vector<TensorRule> rules() const;
  Recipe recipe_from_file() const;

  const Command* command_ = nullptr;
  const Flag *override_flag_ = nullptr, *ignore_flag_ = nullptr, *rotate_flag_ = nullptr;
  std::vector<const Flag*> refinements_;  // these need a type
  std::string type_, file_, type_flag_, group_, codebook_, levels_, embed_type_, head_type_;
  std::string rotation_ = "hadamard", rotate_ = "input", balance_ = "on", effort_ = "full";
  std::string scale_ = "search";
  std::vector<std::string> overrides_, ignores_;
  bool no_signs_ = false;
  int block_ = 0;
  uint32_t seed_ = 42;
};

// Returns one line per format for --help, with its name, bits per weight, error bound and note.
std::string type_list();

}  // namespace walsh::cli
