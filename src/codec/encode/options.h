// Holds the options of encoding that a user chooses beside the format.
#pragma once

namespace walsh {

// With `full` the encoder tries ten starting scales and searches the place where the ring of a
// trellis tile closes over the whole tile. With `fast`, for compressing while loading, it tries one
// scale and searches a part of the tile.
enum class Effort { full, fast };
// `search` refits scales by least squares. `shape_gain` takes original norm / decoded norm.
enum class ScaleRule { search, shape_gain };

struct EncodeOptions {
  Effort effort = Effort::full;
  ScaleRule scale_rule = ScaleRule::search;
};

}  // namespace walsh
