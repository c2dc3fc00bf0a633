// Holds the arguments of the GPU encoder's launches. They are plain data that is passed to kernels
// by value.
#pragma once

#include <cstdint>

namespace walsh::cuda::encoding {

inline constexpr int kMaxThresholds = 7;  // A codebook has at most this many thresholds above zero.
inline constexpr int kStarts = 10;        // The scale search has this many starts.
inline constexpr int kRounds = 6;         // and this many rounds of assignment and refit per start.
inline constexpr int kSpan = 1024;        // A block encodes this many columns of a row.
// It is the packing unit and the shortest segment, in columns.
inline constexpr int kUnit = 32;
inline constexpr int kLeastPower = -76;  // It is the least exponent in SearchRule::power_mantissa.
inline constexpr int kPowers = 80;

// Says how the columns of a span are divided into scale groups. Each kind has a kernel of its own.
enum class GroupKind : uint8_t {
  plain,       // A group has 128 columns and one scale.
  offset,      // A group has 256 columns, a scale and an offset.
  sub_groups,  // A group has 256 columns, scale, offset, and a sub-scale per 32 columns.
  row,         // A row has one scale.
  absmax       // A group has 32 columns, like ggml's q8_0 and q4_0.
};

// Holds the magnitudes of a codebook that is symmetric about 0.
struct Levels {
  // These ascend; the first is 0 if the codebook has an odd size.
  float magnitude[kMaxThresholds + 1];
  // These lie between neighbours; after the last level they are infinite.
  float midpoint[kMaxThresholds];
  // Nibble 8 * (not positive) + i has the code of magnitude i.
  uint64_t codes;
  uint32_t zero_code;  // A group whose scale is 0 has this code.
};

struct SearchRule {
  float start;             // The first scale is start * rms.
  float factors[kStarts];  // The starts are multiplied by these.
  bool all_starts;         // Effort::full sets it.
  // If one of these is set, the scale follows a rule instead of a search.
  bool shape_gain, sigma;
  // This is for sub-groups. For a float s = 2^e * m, round(log2(s)) is e + 1 if its mantissa is at
  // least this one; e is counted from kLeastPower.
  uint32_t power_mantissa[kPowers];
};

// Says how source values are stored. A value is source[row][column] * column_scales[column].
enum class SourceType : uint8_t { f32, f16, bf16 };

struct Source {
  const void* values;  // They have the shape [rows][cols] and this type.
  // It is null if there are none; readable up to a multiple of 8.
  const float* column_scales;
  SourceType type;
  bool aligned;  // If true, rows start at multiples of 16 bytes.
  int64_t cols;
};

// Records refused values: the smallest (row of the tensor * 4 + stage) * cols + column wins.
struct Refusals {
  uint64_t* first;
  int64_t first_row;  // The launch begins at this row of the tensor.
};

// The CPU's encoder checks a row in these stages, in this order.
enum RefusalStage : int { kNotFinite = 0, kTooLarge = 1, kTooLargeInResidual = 2 };

// Describes one pass over rows [0, rows).
struct PassArgs {
  Source source;
  Refusals refusals;
  int stage;  // If the rotation overflows, this stage is recorded.
  int64_t padded;
  int span, spans;       // A block has `span` columns, a row `spans` blocks.
  int block;             // The rotation has blocks of this many columns; 0: there is none.
  int64_t whole_blocks;  // This many columns are in whole blocks; shorter segments follow.
  const float* factors;  // Its shape is [padded]; it is sign / sqrt(segment size).

  int bits;
  Levels levels;
  SearchRule rule;

  uint32_t* codes;  // These arrays are as in the file.
  uint16_t* scales;
  uint16_t* offsets;
  uint16_t* sub_scales;
  int64_t code_words, groups, sub_groups;  // They count per row.

  float* residual;  // It gets source - decoded, [rows][cols]; or it is null.
  double* norms;    // A block writes its sum of source^2; or it is null.
  double* errors;   // A block writes its sum of (source - decoded)^2.
};

// Holds the arguments for converting rows [0, rows) to a dense type. A block converts kSpan columns
// of a row.
struct ConvertArgs {
  Source source;
  Refusals refusals;
  int spans;
  SourceType target;
  void* out;  // Its shape is [rows][cols].
  double* norms;
  double* errors;
};

}  // namespace walsh::cuda::encoding
