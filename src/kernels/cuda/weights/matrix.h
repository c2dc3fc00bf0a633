// Describes what GPU kernels multiply: coded matrices in fragment order, plain ones, and prepared
// inputs.
//
// The order is made for mma.m16n8k32 with int8 operands (weights are A, tokens the columns of B)
// and serves every kernel. A chunk is 16 rows (a tile) by 128 columns, the work of one warp in 4
// products. Lane l = 4 g + t of the warp holds rows g and g + 8 and, of each, the 32 columns
//   32 i + 8 t + r   (i < 4, r < 8),
// code number 8 i + r of the lane: product i then covers 32 neighbouring columns, so that a scale
// per 32 columns can be applied between products, and r < 4 and r >= 4 are its registers. The 32
// codes of a row are packed like 32 codes of the file (docs/formats/README.md): 2, 3, 4 or 8 words
// (bits = 2, 3, 4, 8; an int8 code is a byte, 4 per word). A lane's words of a chunk are those of
// row g, then those of row g + 8.
//   codes:   uint4 [tile][piece][vector][lane]; a piece is 128 columns, 256 for 3 bits (whose words
//            of two chunks, first chunk first, fill three vectors); vectors = 1, 3, 2, 4
//   product codes: the pointers of 16 columns belong to two lanes, t = 2 h and 2 h + 1, which share
//            them: words 0 and 1 of the even lane are those of blocks i = 0 and 1, of the odd lane
//            of 2 and 3; a byte is a pointer (codec/product/product.h). Bit 16 (r / 4) + 4 (r % 4)
//            + i of word 2 is set where the residual is added. Pieces are as those of 3 bits.
//   table:   of product codes int8 pairs [2][256]: values 0 and 1 of the entries, then values 2 and
//            3, less the residual and plus 128
//   trellis codes: words of sixteen steps of every 64 columns (trellis_layout.h), whose
//            columns are not those above: 64 i + 16 t + r (i < 4, r < 16) of a k-tile. With k = 5
//            and 7 the last vector is half as long. Scales are those of the column blocks, and
//            rows have factors of their own.
//   scales, offsets: fp16 [tile][group][g][2], rows g and g + 8 side by side; sub-scales are
//            multiplied into the scales (rounded to fp16), the group then being the sub-group
// Rows are padded to 16 with scale and offset 0, columns to a whole piece with code 0: inputs are 0
// there.
#pragma once

#include <cstdint>
#include <span>

#include "base/cuda/device.h"
#include "base/dtype.h"
#include "codec/cuda/matrix_code.h"
#include "codec/tensor.h"

namespace walsh::cuda {

inline constexpr int kTileRows = 16;
inline constexpr int kChunkColumns = 128;
// A warp processes this part of a row at once.
inline constexpr int kKTileColumns = 256;
inline constexpr int kPaddedColumns = kKTileColumns;  // Inputs are padded to multiples of it.

// Holds one pass of a coded tensor.
struct Matrix {
  MatrixCode code;
  int64_t rows = 0;  // It is the number without padding.
  int64_t cols = 0;  // It is a multiple of 256.
  // A scale holds for this many columns: 32, 128, 256, or cols (one scale per row).
  int64_t group = 0;
  int64_t offset_group = 0;  // An offset holds for this many columns; 0: no offsets.
  Buffer codes, scales, offsets;
  // The rows of trellis codes are multiplied by these and by unit: fp16 [tile][g][2].
  Buffer row_factors;
  Buffer table;  // Decoders that need one have it (table_bytes).

  int64_t tiles() const { return (rows + kTileRows - 1) / kTileRows; }
  int64_t groups() const { return (cols + group - 1) / group; }
  uint64_t bytes() const {
    return codes.bytes() + scales.bytes() + offsets.bytes() + row_factors.bytes() + table.bytes();
  }
};

// Holds a plain matrix, row-major as in the file.
struct DenseMatrix {
  DType type = DType::f32;
  int64_t rows = 0, cols = 0;
  Buffer data;
};

// Points to the stored arrays of one pass on the device, as PassArrays has them on the host.
struct StoredPass {
  const void* codes = nullptr;
  const void* scales = nullptr;
  const void* offsets = nullptr;     // Null means none.
  const void* sub_scales = nullptr;  // Null means none.
  const void* codebook = nullptr;    // Null means the format's.
  const void* col_scales = nullptr;  // Null means none.
};

// Allocates the device memory for a pass of a [rows, cols] tensor.
Matrix allocate_matrix(const Format& format, int pass, int64_t rows, int64_t cols);
// Repacks one pass of a [rows, cols] tensor whose stored arrays are already on the device.
Matrix pack_matrix(const Format& format, int pass, int64_t rows, int64_t cols,
                   const StoredPass& stored, Stream stream);
// Copies pass `pass` of a tensor to the device, unless its arrays are there (Tensor::on_gpu), and
// repacks it there. `staging` is device memory for the stored arrays, which is enlarged if
// necessary. The work is ordered on the uploader's stream.
Matrix upload_matrix(const Tensor& tensor, int pass, Uploader& uploader, Buffer& staging);
// Does the same, into a matrix that allocate_matrix has made.
void fill_matrix(const Matrix& matrix, const Tensor& tensor, int pass, Uploader& uploader,
                 Buffer& staging);
DenseMatrix upload_dense(const Tensor& tensor, Uploader& uploader);
// Returns the same values as float32, or the matrix itself if it is float32 already.
DenseMatrix widen(const DenseMatrix& matrix, Stream stream);

// Holds the inputs of a product: up to `max_m` vectors of int8 planes in the basis of the weights.
//   x[t][c] ~ sum over planes p of scales[t * planes + p][c / group] * q[t * planes + p][c]
// q is stored so that a lane's columns of a chunk are neighbours: column 32 i + 8 t + r of a chunk
// is byte 32 t + 8 i + r of its 128. Values, scales and rounding are those of the CPU's
// quantize_i8.
struct Activations {
  int64_t cols = 0;  // It is a multiple of 256.
  // A scale holds for this many columns: 128 for rotated inputs, 32 for others.
  int group = 128;
  int planes = 1;
  int64_t max_m = 0;
  Buffer q;       // It is int8 [max_m * planes][cols].
  Buffer scales;  // It is float [max_m * planes][cols / group].
  // It is int32 [max_m * planes][cols / group]; these are sums of q over a group.
  Buffer sums;

  Activations() = default;
  Activations(int64_t max_m, int64_t cols, int group, int planes);
  uint64_t bytes() const { return q.bytes() + scales.bytes() + sums.bytes(); }
};

// Returns which byte of a chunk of Activations::q holds column c (0..127) of the chunk.
constexpr int activation_byte(int c) {
  return (c % 32 / 8) * 32 + (c / 32) * 8 + c % 8;
}

}  // namespace walsh::cuda
