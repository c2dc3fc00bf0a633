// Defines weight storage formats; format.cpp has their registry. A format is a layout plus a
// codebook, and its kind says how codes become weights. All scalar formats share one decoder,
// `value = scale * level[code] (+ offset)`, all trellis formats another (codec/trellis/trellis.h),
// and product codes a third (codec/product/product.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace walsh {

enum class CodeKind : uint8_t {
  plain,    // Values are f32, f16 or bf16, without codes.
  scalar,   // ScalarCode describes it; it has one or two passes.
  trellis,  // TrellisCode describes it; it has one pass.
  product   // ProductCode describes it; it has one pass.
};

// Says how the encoder finds a group's scale.
enum class ScaleFit : uint8_t {
  search,  // It minimizes squares from several starts (docs/formats/README.md).
  // Takes the rms of the group and offset 0, like the ternary code of the ITQ3_S paper.
  sigma,
  // It is that of ggml's q8_0 (absmax / 127) and q4_0 (value of largest magnitude / -8).
  absmax
};

// Describes packed codes of `bits` bits (docs/formats/README.md; 8: one int8 each) with fp16 scales
// per group. Groups are cut from the start of the row; the last one may be shorter.
struct ScalarCode {
  int bits = 0;   // It is 2 to 6 or 8; walsh writes no 5 and 6.
  int group = 0;  // This many weights share a scale; 0: a whole row does.
  // In itq3_s8 this many weights (32) share an fp16 sub-scale; their scale is d * sub_scale.
  int sub_group = 0;
  bool has_offset = false;  // If true, a group has an fp16 offset z.
  // It has the shape [2^bits], indexed by code; null for 8 bits, where the int8 is the level.
  const float* levels = nullptr;
  // It has the shape [2^bits], for integer kernels: level is about unit * levels_i8.
  const int8_t* levels_i8 = nullptr;
  float unit = 1;
  ScaleFit fit = ScaleFit::search;
  // It is the scale of the levels that suits N(0,1): the search starts at start * rms.
  float start = 1;
};

// Says how the product P = state * multiplier mod 2^32 of a trellis gives the weights of a step.
enum class TrellisRule : uint8_t {
  // The upper bits of P are the index of an entry. Only retired formats have it.
  table,
  // For two weights: each is the sum of seven bits of a byte of either half; it needs no table.
  bytes,
  // For two weights: seven bits of a byte of the upper half are the index of a level.
  quantiles
};

// Describes a bit-shift trellis code (codec/trellis/trellis.h). Each step appends `step_bits` bits
// to a state of `state_bits` bits, and the state gives `values` consecutive weights of a tile.
// With bytes b0 (lowest) to b3 of the product P, the level v of the state is unit times
//   table      table[(P >> (32 - table_bits)) * values + v]
//   bytes      (b_v mod 128) + (b_(2 + v) mod 128) - 127; both halves of the multiplier are equal
//   quantiles  table[b_(2 + v) mod 128]
struct TrellisCode {
  TrellisRule rule = TrellisRule::table;
  int step_bits = 0;   // A step has this many bits; formulas call it k.
  int state_bits = 0;  // A state has this many bits; formulas call it L.
  int values = 1;      // A step gives this many weights (V); 256 / V steps make a tile.
  int table_bits = 0;  // It is log2 of the table's entries.
  uint32_t multiplier = 0;
  const int8_t* table = nullptr;  // Its shape is [2^table_bits][values], or [128] for quantiles.
  float unit = 1;
  float prescale = 1;  // The encoder's targets are x / (prescale * scale).
  // If true, there is an fp16 scale for each pair of a row and a column block. If false, the scale
  // of a row is multiplied by that of the column block.
  bool block_scales = false;
};

// Describes a product code (codec/product/product.h). Four weights are an entry of a
// codebook of 256, and each adds or takes away `residual`.
//   level = unit * (codebook[pointer][i] +- residual)
struct ProductCode {
  int group = 0;                     // This many weights share an fp16 scale.
  const int8_t* codebook = nullptr;  // Its shape is [256][4]; the shortest vector comes first.
  int residual = 0;
  float unit = 1;
  // If true, the tensor stores a codebook of its own, whose training starts from the one above.
  bool own_codebook = false;
};

struct Format {
  std::string_view name;  // It includes the profile: "tq3", "tq3:full", "itq3_s:strict".
  CodeKind kind = CodeKind::plain;
  bool dense = false;        // If true, values are f32, f16 or bf16, without codes.
  DType dtype = DType::f32;  // Dense formats use it.
  int passes = 0;            // It is 1, 2 for residual formats, or 0 for dense ones.
  ScalarCode code[2];        // Scalar formats have one per pass.
  TrellisCode trellis;       // Trellis formats use it.
  ProductCode product;       // Product formats use it.
  // It is the default Hadamard block in columns; 0: the format is not rotated (q8_0, q4_0, dense).
  int rotation_block = 0;
  // It is the number of int8 planes of activations (1: 8 bits, 2: about 15 bits).
  int activation_planes = 1;
  double bound = 0;       // The format must reach this NMSE on N(0,1); 0: there is no bound.
  bool retired = false;   // If true, walsh reads it and no longer writes it (codec/retired.h).
  std::string_view note;  // Listings show it in one line.
};

// Returns all formats that are written, in the order of listings. Trellis formats also have
// profiles, which only get_format and trellis_profile (codec/trellis/trellis_profiles.h) return.
std::span<const Format> all_formats();
// Returns the formats among which a user chooses. Variants, whose names have a colon, are left out.
std::vector<const Format*> listed_formats();
// Returns the name that listings give a format: its short name, if it has one.
std::string_view listed_name(const Format& format);
// Returns the format that users mean by a name, which may have a profile or be short ("tc3:blocks"
// is "tc3:h:blocks"). The name of a trellis code that is no longer written stands for that of its
// rate. Throws usage with the known names for others.
const Format& get_format(std::string_view name);
// Returns a sentence for a user who gave a name that get_format accepts although no format has it
// any more: it says what the name stands for. Returns an empty text for other names.
std::string about_name(std::string_view name);
// Returns the format that files call by this name, retired formats included. "tc3" without a
// profile means "tc3:L12" in files, and "tc3.5" means "tc3.5:L14". Throws usage for other names.
const Format& stored_format(std::string_view name);
const Format& dense_format(DType dtype);

// Returns the stored row length: cols rounded up to a multiple of 32 for coded formats, cols itself
// for dense ones.
int64_t padded_cols(const Format& format, int64_t cols);
// Returns how many groups (or sub-groups) a row of `padded` columns has.
int64_t groups_per_row(const ScalarCode& code, int64_t padded);
int64_t sub_groups_per_row(const ScalarCode& code, int64_t padded);
// Returns how many bytes the packed codes of a row take.
int64_t code_bytes_per_row(const ScalarCode& code, int64_t padded);

}  // namespace walsh
