// This is the registry of weight storage formats. A format is a layout plus a codebook; its kind
// says how codes become weights. All scalar formats share one decoder, `value = scale * level[code]
// (+ offset)`, all trellis formats another (codec/trellis/trellis.h), and product codes a third
// (codec/product/product.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace walsh {

enum class CodeKind : uint8_t {
  plain,    // f32, f16, bf16: no codes
  scalar,   // ScalarCode, one or two passes
  trellis,  // TrellisCode, one pass
  product   // ProductCode, one pass
};

// Says how the encoder finds a group's scale.
enum class ScaleFit : uint8_t {
  search,  // least squares from several starts (docs/formats/README.md)
  sigma,   // the rms of the group, offset 0: the ternary code as the ITQ3_S paper has it
  absmax   // as ggml's q8_0 (absmax / 127) and q4_0 (value of largest magnitude / -8)
};

// A scalar code has packed codes of `bits` bits (docs/formats/README.md; 8: one int8 each) and fp16
// scales per group. Groups are cut from the row start; the last one may be shorter.
struct ScalarCode {
  int bits = 0;                   // 2 to 6 or 8; formats that walsh writes have no 5 and 6
  int group = 0;                  // weights per scale; 0: one scale per row
  int sub_group = 0;              // itq3_s8: 32 weights per fp16 sub-scale; scale = d * sub_scale
  bool has_offset = false;        // fp16 offset z per group
  const float* levels = nullptr;  // [2^bits], by code; null for 8 bits (level = the int8)
  const int8_t* levels_i8 = nullptr;  // [2^bits] for integer kernels: level ~ unit * levels_i8
  float unit = 1;
  ScaleFit fit = ScaleFit::search;
  float start = 1;  // scale of the levels that suits N(0,1): the search starts at start * rms
};

// The product P = state * multiplier mod 2^32 of a trellis gives the weights of a step like this.
enum class TrellisRule : uint8_t {
  table,     // its upper bits are the index of an entry; of retired formats only
  bytes,     // two weights: the sum of seven bits of a byte of either half, no table
  quantiles  // two weights: seven bits of a byte of the upper half are the index of a level
};

// In a bit-shift trellis code (codec/trellis/trellis.h) each step appends `step_bits` bits to a
// state of `state_bits` bits, and the state gives `values` consecutive weights of a tile. With
// bytes b0 (lowest) to b3 of the product, the level v of the state is unit times
//   table      table[(P >> (32 - table_bits)) * values + v]
//   bytes      (b_v mod 128) + (b_(2 + v) mod 128) - 127; both halves of the multiplier are equal
//   quantiles  table[b_(2 + v) mod 128]
struct TrellisCode {
  TrellisRule rule = TrellisRule::table;
  int step_bits = 0;   // k
  int state_bits = 0;  // L
  int values = 1;      // V; 256 / V steps make a tile
  int table_bits = 0;  // log2 of the table's entries
  uint32_t multiplier = 0;
  const int8_t* table = nullptr;  // [2^table_bits][values]; [128] of quantiles
  float unit = 1;
  float prescale = 1;         // the encoder's targets are x / (prescale * scale)
  bool block_scales = false;  // an fp16 scale per row and column block, not per row and per block
};

// A product code has a sign per weight (codec/product/product.h): four weights are an entry of a
// codebook of 256, and each adds or takes away `residual`.
//   level = unit * (codebook[pointer][i] +- residual)
struct ProductCode {
  int group = 0;                     // weights per fp16 scale
  const int8_t* codebook = nullptr;  // [256][4], shortest vector first
  int residual = 0;
  float unit = 1;
  bool own_codebook = false;  // the tensor stores a codebook of its own; the one above starts it
};

struct Format {
  std::string_view name;  // with its profile: "tq3", "tq3:full", "itq3_s:strict"
  CodeKind kind = CodeKind::plain;
  bool dense = false;         // f32, f16, bf16: no codes
  DType dtype = DType::f32;   // of dense formats
  int passes = 0;             // 1, or 2 for residual formats; 0 for dense ones
  ScalarCode code[2];         // per pass, of scalar formats
  TrellisCode trellis;        // of trellis formats
  ProductCode product;        // of product formats
  int rotation_block = 0;     // default Hadamard block; 0: not rotated (q8_0, q4_0, dense)
  int activation_planes = 1;  // int8 planes of the activation (1: 8 bits, 2: about 15 bits)
  double bound = 0;           // NMSE on N(0,1) that the format must reach (0: none)
  bool retired = false;       // walsh reads it and no longer writes it (codec/retired.h)
  std::string_view note;      // one line for listings
};

// Returns all formats that are written, in the order of listings. Trellis formats have further
// profiles, which only get_format and trellis_profile (codec/trellis/trellis_profiles.h) give.
std::span<const Format> all_formats();
// Returns those that a user chooses among. Variants, whose names have a colon, are left out.
std::vector<const Format*> listed_formats();
// A short name stands for the profile that users should take: "tc3" for "tc3:h".
struct ShortName {
  std::string_view name, format;
};
std::span<const ShortName> short_names();
// Returns the name by which listings call a format: the short name, if it has one.
std::string_view listed_name(const Format& format);
// Returns the format that users call so, with profile or by a short name ("tc3:blocks" is
// "tc3:h:blocks"). The name of a trellis code that is no longer written stands for that of its
// rate. Throws usage naming the known ones.
const Format& get_format(std::string_view name);
// Returns a sentence for a user who gave a name that get_format takes although no format has it any
// more. It says what the name stands for. Returns an empty text for other names.
std::string about_name(std::string_view name);
// Returns the format that files call so, retired formats too. "tc3" without a profile is "tc3:L12"
// there, "tc3.5" is "tc3.5:L14". Throws usage.
const Format& stored_format(std::string_view name);
const Format& dense_format(DType dtype);

// Returns the stored row length: a multiple of 32 for coded formats, cols itself for dense ones.
int64_t padded_cols(const Format& format, int64_t cols);
// Returns how many groups (or sub-groups) a row of `padded` columns has.
int64_t groups_per_row(const ScalarCode& code, int64_t padded);
int64_t sub_groups_per_row(const ScalarCode& code, int64_t padded);
// Returns the bytes of packed codes of one row.
int64_t code_bytes_per_row(const ScalarCode& code, int64_t padded);

}  // namespace walsh
