#include "cli/recipe_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/convert.h"
#include "codec/codec.h"
#include "codec/tensor.h"
#include "io/mapped_file.h"
#include "quantize/recipe/recipe_file.h"
#include "walsh/error.h"

namespace walsh::cli {

void RecipeOptions::add_to(Command& command, const std::string& type_flag) {
  command_ = &command;
  type_flag_ = type_flag;
  const bool runs = type_flag != "--type";
  const FlagGroup group = command.group("Compression");
  group.add(type_flag, &type_,
            "Type of the linear weights, such as tq4; walsh formats lists them all",
            {.value = "TYPE"});
  group.add("--recipe", &file_, "Take everything below from a file that --save-recipe wrote",
            {.value = "FILE"});
  const auto add = [&](const char* name, const Target& target, const std::string& text,
                       FlagRules rules = {}) {
    const Flag& flag = group.add(name, target, text, std::move(rules));
    refinements_.push_back(&flag);
    return &flag;
  };
  add("--group", &group_,
      "Weights that share a scale, for tq*: 128, 64, 32 (CPUs only), or full (a whole row)",
      {.choices = {"128", "64", "32", "full"}});
  add("--codebook", &codebook_,
      "Codebook of pq3: universal, or layer (one is trained for each tensor)",
      {.choices = {"universal", "layer"}});
  add("--levels", &levels_, "Variant of itq3_s: full, strict, ternary, ternary-paper",
      {.choices = {"full", "strict", "ternary", "ternary-paper"}});
  add("--embed-type", &embed_type_, "Type of the token embedding (default: q8_0)",
      {.value = "TYPE"});
  add("--head-type", &head_type_, "Type of a separate output head (default: q8_0)",
      {.value = "TYPE"});
  override_flag_ = add("--override", &overrides_,
                       "re:PATTERN=TYPE or NAME=TYPE; the first match wins", {.value = "RULE"});
  ignore_flag_ = add("--ignore", &ignores_, "re:PATTERN or NAME: leave these tensors unchanged",
                     {.value = "RULE"});
  add("--rotation", &rotation_, "hadamard, qr (random orthogonal) or none",
      {.choices = {"hadamard", "qr", "none"}});
  // Commands that run a model also accept `weights`, which is not stored in files.
  std::string text =
      "input: rotate activations at run time; residual: fold the rotation into the weights; both: "
      "rotate outputs as well, at run time";
  std::vector<std::string> places = {"both", "input", "residual"};
  if (runs) {
    text += "; weights: rotate the weights back while a GPU loads them, instead of activations";
    places.emplace_back(kRotateWeights);
  }
  rotate_flag_ = add("--rotate", &rotate_, text, {.choices = places});
  add("--block", &block_, "Rotation block: a power of two, 32 to 1024 (default: the format's)");
  add("--no-signs", &no_signs_, "Rotate without random signs (for comparison)");
  // The --seed of commands that run a model belongs to the sampler.
  add(runs ? "--rotation-seed" : "--seed,--rotation-seed", &seed_, "Seed of the rotation",
      {.shown = true});
  add("--balance", &balance_, "Balance channels before the rotation: on or off",
      {.choices = {"on", "off"}});
  add("--effort", &effort_, "How hard to search for scales: full or fast",
      {.choices = {"full", "fast"}});
  add("--scale", &scale_, "How scales are chosen: search (least squares) or shape-gain",
      {.choices = {"search", "shape-gain"}});
}

bool RecipeOptions::is_refinement(const Flag& flag) const {
  return flag.given() && !(&flag == rotate_flag_ && rotates_weights());
}

std::vector<TensorRule> RecipeOptions::rules() const {
  std::vector<TensorRule> rules;
  size_t next_override = 0, next_ignore = 0;
  for (const Flag* flag : command_->given_flags) {
    if (flag == override_flag_) rules.push_back(parse_override(overrides_[next_override++]));
    if (flag == ignore_flag_) rules.push_back(parse_ignore(ignores_[next_ignore++]));
  }
  return rules;
}

void RecipeOptions::refuse_without_type() const {
  if (given()) return;
  for (const Flag* flag : refinements_)
    if (is_refinement(*flag))
      throw Error(ErrorCode::usage, flag->name(), "works only with " + type_flag_);
}

Recipe RecipeOptions::recipe_from_file() const {
  const auto refuse = [](const std::string& flag) {
    throw Error(ErrorCode::usage, flag, "cannot be combined with --recipe, which sets all of this");
  };
  if (!type_.empty()) refuse(type_flag_);
  for (const Flag* flag : refinements_)
    if (is_refinement(*flag)) refuse(flag->name());
  return parse_recipe(read_text_input(file_, kMaxRecipeBytes), file_);
}

Recipe RecipeOptions::recipe(const std::string& output_format) const {
  return file_.empty() ? recipe_of(type_, output_format) : recipe_from_file();
}

namespace {

constexpr const char* kGroupedTypes = "tq2, tq3 and tq4";

// Returns the name of a type's variant. Throws usage naming the flag if the type has no such one.
std::string variant_of(const std::string& type, const std::string& variant, const char* flag,
                       const char* types) {
  get_format(type);  // a type that does not exist is reported as such
  const std::string name = type + ":" + variant;
  try {
    get_format(name);
  } catch (const Error&) {
    throw Error(ErrorCode::usage, flag,
                fmt::format("'{}' does not go with {}, but with {}", variant, type, types));
  }
  return name;
}

}  // namespace

Recipe RecipeOptions::recipe_of(const std::string& type, const std::string& output_format) const {
  CompressOptions options;
  options.type = type;
  options.output_format = output_format;
  const auto choose = [&](const std::string& variant, const char* flag, const char* types) {
    options.type = variant_of(options.type, variant, flag, types);
  };
  if (group_ == "full") choose("full", "--group", kGroupedTypes);
  if (group_ == "64" || group_ == "32") choose("g" + group_, "--group", kGroupedTypes);
  if (codebook_ == "layer") choose("layer", "--codebook", "pq3");
  if (!levels_.empty() && levels_ != "full") choose(levels_, "--levels", "itq3_s");
  options.embed_type = embed_type_;
  options.head_type = head_type_;
  options.rotation = rotation_;
  options.rotate = rotates_weights() ? "input" : rotate_;
  options.block = block_;
  options.signs = !no_signs_;
  options.seed = seed_;
  options.balance = balance_ == "on";
  options.fast = effort_ == "fast";
  options.shape_gain = scale_ == "shape-gain";
  Recipe recipe = to_recipe(options);
  recipe.rules = rules();  // --override and --ignore keep the order in which they were given
  return recipe;
}

namespace {

// These properties of a recipe's types decide which flags have an effect.
struct RecipeFacts {
  bool rotates, balances, searches, fits, grouped, codebooks, levels;

  explicit RecipeFacts(const Recipe& recipe) {
    std::vector<const Format*> formats = {recipe.type, recipe.embed_type, recipe.head_type};
    for (const TensorRule& rule : recipe.rules)
      formats.push_back(rule.format);
    const auto any = [&](const auto& test) {
      return std::any_of(formats.begin(), formats.end(),
                         [&](const Format* format) { return format != nullptr && test(*format); });
    };
    const bool rotated = any([](const Format& f) { return f.rotation_block != 0; });
    rotates = (rotated || recipe.rotate != RotateAt::input);
    balances = rotated && recipe.rotation != RotationKind::none;
    fits = any([](const Format& f) { return codec_of(f).fits_scales(f); });
    searches = any([&](const Format& f) { return codec_of(f).searches(f, recipe.encode); });
    codebooks = any([](const Format& f) { return f.name.starts_with("pq3"); });
    grouped = any([](const Format& f) { return f.name.starts_with("tq"); });
    levels = any([](const Format& f) { return f.name.starts_with("itq3_s"); });
  }
};

}  // namespace

std::vector<std::string> RecipeOptions::idle_flags(const Recipe& recipe) const {
  if (!file_.empty()) return {};
  const RecipeFacts facts(recipe);
  const bool turned = facts.rotates && recipe.rotation != RotationKind::none;
  const struct {
    const char* flag;
    bool has_effect;
    const char* reason;
  } flags[] = {
      {"--rotation", facts.rotates, "none of the chosen types is rotated"},
      {"--block", turned, "nothing is rotated"},
      {"--no-signs", turned, "nothing is rotated"},
      {"--rotation-seed", turned, "nothing is rotated"},
      {"--balance", facts.balances, "only rotated matrices are balanced"},
      {"--effort", facts.searches, "no scale is searched for"},
      {"--scale", facts.fits, "none of the chosen types has such scales"},
      {"--group", facts.grouped, "it goes with tq2, tq3 and tq4"},
      {"--codebook", facts.codebooks, "it goes with pq3"},
      {"--levels", facts.levels, "it goes with itq3_s"},
  };
  std::vector<std::string> notes;
  for (const auto& [flag, has_effect, reason] : flags)
    if (!has_effect && command_->given(flag))
      notes.push_back(fmt::format("{} changes nothing: {}", flag, reason));
  return notes;
}

std::string type_list() {
  std::string text = "Types (bits per weight, bound of the error on N(0,1)):\n";
  for (const Format* format : listed_formats()) {
    const std::string bound = format->bound > 0 ? fmt::format("{:.3g}", format->bound) : "-";
    text += fmt::format("  {:<8} {:>7.3f}  {:>8}  {}\n", listed_name(*format),
                        nominal_bits(*format), bound, format->note);
  }
  return text;
}

}  // namespace walsh::cli
