#include "quantize/recipe/recipe.h"

#include <algorithm>
#include <bit>

#include "codec/codec.h"
#include "io/json.h"
#include "io/printable.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr int kQrBlock = 128, kOutputBlock = 128, kFoldBlock = 1024;

TensorRule parse_pattern(std::string_view text, const char* flag) {
  if (text.empty()) throw Error(ErrorCode::usage, flag, "empty tensor name or pattern");
  // Names are UTF-8, and so is the JSON in which a recipe is stored.
  if (!is_utf8(text)) {
    throw Error(ErrorCode::usage, flag, "'" + printable(text) + "': is not valid UTF-8");
  }
  TensorRule rule;
  rule.pattern = text;
  if (text.starts_with("re:")) {
    try {
      rule.regex = Regex::for_names(text.substr(3), "'" + rule.pattern + "'");
    } catch (const Error& e) {
      throw Error(ErrorCode::usage, flag, e.where() + ": " + e.reason());
    }
  }
  return rule;
}

}  // namespace

RotateAt parse_rotate_at(std::string_view name) {
  for (const RotateAt place : {RotateAt::input, RotateAt::residual, RotateAt::both}) {
    if (rotate_at_name(place) == name) return place;
  }
  throw Error(ErrorCode::usage, "--rotate",
              "unknown place '" + std::string(name) + "', expected input, residual or both");
}

std::string_view rotate_at_name(RotateAt place) {
  switch (place) {
    case RotateAt::input:
      return "input";
    case RotateAt::residual:
      return "residual";
    case RotateAt::both:
      return "both";
  }
  return "?";
}

bool TensorRule::matches(const std::string& tensor, StepBudget& steps) const {
  if (regex) return regex->matches(tensor, steps);
  return tensor.starts_with(pattern) &&
         (tensor.size() == pattern.size() || tensor.substr(pattern.size()) == ".weight");
}

TensorRule parse_override(std::string_view text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string_view::npos) {
    throw Error(ErrorCode::usage, "--override",
                "'" + std::string(text) + "' lacks '=TYPE', expected re:PATTERN=TYPE or NAME=TYPE");
  }
  TensorRule rule = parse_pattern(text.substr(0, equals), "--override");
  rule.format = &get_format(text.substr(equals + 1));
  rule.note = about_name(text.substr(equals + 1));
  return rule;
}

TensorRule parse_ignore(std::string_view text) {
  return parse_pattern(text, "--ignore");
}

void check_recipe(const Recipe& recipe) {
  if (!recipe.type) throw Error(ErrorCode::usage, "--type", "a type is needed");
  const bool sane = recipe.block == 0 || (recipe.block >= 32 && recipe.block <= 1024 &&
                                          std::has_single_bit(static_cast<unsigned>(recipe.block)));
  if (!sane) {
    throw Error(ErrorCode::usage, "--block",
                "found " + std::to_string(recipe.block) + ", expected a power of two, 32 to 1024");
  }
  if (recipe.rotate != RotateAt::input && recipe.rotation == RotationKind::none) {
    throw Error(ErrorCode::usage, "--rotate " + std::string(rotate_at_name(recipe.rotate)),
                "cannot be combined with --rotation none");
  }
}

std::vector<std::string> name_notes(const Recipe& recipe) {
  std::vector<std::string> notes;
  const auto add = [&](const std::string& note) {
    if (!note.empty() && std::find(notes.begin(), notes.end(), note) == notes.end())
      notes.push_back(note);
  };
  for (const std::string& note : recipe.notes)
    add(note);
  for (const TensorRule& rule : recipe.rules)
    add(rule.note);
  return notes;
}

const Format* default_ends(const Format& type) {
  return type.dense ? nullptr : &get_format("q8_0");
}

const Format& format_at(const Format& format, Effort effort) {
  const auto fast_profile = codec_of(format).fast_profile;
  return effort == Effort::fast && fast_profile ? fast_profile(format) : format;
}

Rotation rotation_for(const Recipe& recipe, const Format& format, std::string_view activation,
                      int pass) {
  Rotation r;
  r.seed = rotation_seed(recipe.seed, activation, pass);
  r.signs = recipe.signs;
  r.kind = format.rotation_block == 0 ? RotationKind::none : recipe.rotation;
  if (r.kind == RotationKind::none) return {RotationKind::none, 32, 0, false};
  const int own = r.kind == RotationKind::qr ? kQrBlock : format.rotation_block;
  r.block = recipe.block ? recipe.block : own;
  return r;
}

Rotation fold_rotation(const Recipe& recipe) {
  int own = recipe.rotate == RotateAt::both ? kOutputBlock : kFoldBlock;
  if (recipe.rotation == RotationKind::qr) own = kQrBlock;
  return {recipe.rotation, recipe.block ? recipe.block : own, recipe.seed, recipe.signs};
}

std::string recipe_json(const Recipe& recipe) {
  const auto name = [](const Format* f) { return f ? std::string(f->name) : "source"; };
  Json rules = Json::array();
  for (const TensorRule& rule : recipe.rules) {
    rules.push_back({{"tensor", rule.pattern}, {"type", name(rule.format)}});
  }
  Json json = {
      {"type", name(recipe.type)},
      {"embed_type", name(recipe.embed_type)},
      {"head_type", name(recipe.head_type)},
      {"rules", std::move(rules)},
      {"rotation", rotation_kind_name(recipe.rotation)},
      {"rotate", rotate_at_name(recipe.rotate)},
      {"block", recipe.block},
      {"signs", recipe.signs},
      {"seed", recipe.seed},
      {"balance", recipe.balance},
      {"effort", recipe.encode.effort == Effort::full ? "full" : "fast"},
      {"scale", recipe.encode.scale_rule == ScaleRule::search ? "search" : "shape-gain"},
  };
  if (recipe.calibration) {
    const CalibrationText& text = *recipe.calibration;
    json["calibration"] = {
        {"text", text.checksum}, {"tokens", text.tokens}, {"window", text.window}};
    if (!text.curvature.empty()) json["calibration"]["curvature"] = text.curvature;
  }
  return json.dump();
}

}  // namespace walsh
