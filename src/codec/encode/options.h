// What a user chooses of encoding, beside the format.
#pragma once

namespace walsh {

// full: ten starting scales, keep the best; fast: the first start only, for compressing while
// loading. Of trellis formats: where a tile's cycle closes, searched over the tile or a part of it.
enum class Effort { full, fast };
// search: least-squares refits; shape_gain: original norm / reconstruction norm (seed comparison).
enum class ScaleRule { search, shape_gain };

struct EncodeOptions {
  Effort effort = Effort::full;
  ScaleRule scale_rule = ScaleRule::search;
};

}  // namespace walsh
