// A launch of the GPU encoder has these arguments. They are plain data, passed to kernels by value.
#pragma once

#include <cstdint>

namespace walsh::cuda::encoding {

inline constexpr int kMaxThresholds = 7;  // thresholds above zero
inline constexpr int kStarts = 10;        // starting points of the scale search
inline constexpr int kRounds = 6;         // rounds of assignment and refit per starting point
inline constexpr int kSpan = 1024;        // columns of a row that a block encodes
inline constexpr int kUnit = 32;          // columns of the packing unit and of the shortest segment
inline constexpr int kLeastPower = -76;   // of the exponents in SearchRule::power_mantissa
inline constexpr int kPowers = 80;

// Says how the columns of a span are divided into scale groups. Each kind has a kernel of its own.
enum class GroupKind : uint8_t {
  plain,       // 128 columns, one scale
  offset,      // 256 columns, scale and offset
  sub_groups,  // 256 columns, scale, offset and a sub-scale per 32 columns
  row,         // one scale per row
  absmax       // 32 columns, like ggml's q8_0 and q4_0
};

// Holds a codebook that is symmetric about 0, by magnitude.
struct Levels {
  float magnitude[kMaxThresholds + 1];  // ascending; the first is 0 in a codebook of odd size
  float midpoint[kMaxThresholds];       // between neighbours; infinite behind the last level
  uint64_t codes;                       // nibble 8 * (not positive) + index of the magnitude
  uint32_t zero_code;                   // the code of a group whose scale is 0
};

struct SearchRule {
  float start;             // the first scale is start * rms
  float factors[kStarts];  // of the starting points
  bool all_starts;         // Effort::full
  bool shape_gain, sigma;  // used instead of a search
  // For sub-groups: round(log2(s)) of a float s = 2^e * m is e + 1 if its mantissa is at least this
  // one, where e is counted from kLeastPower.
  uint32_t power_mantissa[kPowers];
};

// Values are read as source[row][column] * column_scales[column].
enum class SourceType : uint8_t { f32, f16, bf16 };

struct Source {
  const void* values;          // [rows][cols] of `type`
  const float* column_scales;  // null: none; readable up to a multiple of 8
  SourceType type;
  bool aligned;  // rows start at a multiple of 16 bytes
  int64_t cols;
};

// Refused values are recorded here: the smallest (row of the tensor * 4 + stage) * cols + column.
struct Refusals {
  uint64_t* first;
  int64_t first_row;  // of this launch, counted in the tensor
};

// The CPU's encoder checks a row in these stages, in this order.
enum RefusalStage : int { kNotFinite = 0, kTooLarge = 1, kTooLargeInResidual = 2 };

// Describes one pass over rows [0, rows).
struct PassArgs {
  Source source;
  Refusals refusals;
  int stage;  // the stage that is recorded if the rotation overflows
  int64_t padded;
  int span, spans;       // columns per block, blocks per row
  int block;             // of the rotation; 0: not rotated
  int64_t whole_blocks;  // columns in whole blocks; the segments behind them are shorter
  const float* factors;  // [padded] sign / sqrt(segment size)

  int bits;
  Levels levels;
  SearchRule rule;

  uint32_t* codes;  // these are the arrays of the file
  uint16_t* scales;
  uint16_t* offsets;
  uint16_t* sub_scales;
  int64_t code_words, groups, sub_groups;  // per row

  float* residual;  // [rows][cols] source - decoded, or null
  double* norms;    // per block: sum of source^2, or null
  double* errors;   // per block: sum of (source - decoded)^2
};

// Converts rows [0, rows) to a dense type. A block converts kSpan columns of a row.
struct ConvertArgs {
  Source source;
  Refusals refusals;
  int spans;
  SourceType target;
  void* out;  // [rows][cols]
  double* norms;
  double* errors;
};

}  // namespace walsh::cuda::encoding
