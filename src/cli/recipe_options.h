// The flags that say how to compress: the same for `quantize` and, with --quantize, for every
// command that runs a model.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "quantize/recipe/recipe.h"

namespace walsh::cli {

class RecipeOptions {
 public:
  // `type_flag` is "--type" or "--quantize".
  void add_to(CLI::App& command, const std::string& type_flag);

  // A type, or a recipe that was saved (--recipe).
  bool given() const { return !type_.empty() || !file_.empty(); }
  const std::string& file() const { return file_; }  // of --recipe; may be empty
  // Throws usage for an unknown type or a combination that makes no sense, bad_input or io for a
  // recipe file.
  Recipe recipe() const;
  // The same without a type of its own, `type` standing for it: what an allocation starts from.
  Recipe recipe_of(const std::string& type) const;
  // Of the refinements that were given those without effect on any type of the recipe, as notes.
  std::vector<std::string> idle_flags(const Recipe& recipe) const;
  // Throws usage if a refinement was given although the type was not.
  void refuse_without_type() const;
  // --rotate weights, which is no refinement: a way to run any model that is rotated.
  bool rotates_weights() const { return rotate_ == kRotateWeights; }

 private:
  static constexpr const char* kRotateWeights = "weights";

  void add_rotate(CLI::App& command, const std::string& group);
  bool is_refinement(const CLI::Option* option) const;  // that was given
  std::vector<TensorRule> rules() const;
  Recipe recipe_from_file() const;

  const CLI::App* command_ = nullptr;
  const CLI::Option* override_option_ = nullptr;
  const CLI::Option* ignore_option_ = nullptr;
  CLI::Option* rotate_option_ = nullptr;
  std::vector<const CLI::Option*> refinements_;  // meaningless without a type
  std::string type_, file_, type_flag_, group_, codebook_, levels_, embed_type_, head_type_;
  std::string rotation_ = "hadamard", rotate_ = "input", balance_ = "on", effort_ = "full";
  std::string scale_ = "search";
  std::vector<std::string> overrides_, ignores_;
  bool no_signs_ = false;
  int block_ = 0;
  uint32_t seed_ = 42;
};

// One line per format: name, bits per weight, error bound, note; for --help.
std::string type_list();

}  // namespace walsh::cli
