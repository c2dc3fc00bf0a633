// A user chooses these options of encoding beside the format.
#pragma once

namespace walsh {

// The encoder tries ten starting scales (full) or one (fast, used while loading), and searches the
// place where the ring of a trellis tile closes over the whole tile (full) or a part of it (fast).
enum class Effort { full, fast };
// Scales are refitted by least squares, or are original norm / decoded norm, as in the seeds.
enum class ScaleRule { search, shape_gain };

struct EncodeOptions {
  Effort effort = Effort::full;
  ScaleRule scale_rule = ScaleRule::search;
};

}  // namespace walsh
