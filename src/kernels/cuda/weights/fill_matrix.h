// Fills matrices whose memory was allocated before.
#pragma once

#include "kernels/cuda/weights/matrix.h"

namespace walsh::cuda {

// Does what upload_matrix() does, into a matrix that allocate_matrix has made for pass `pass` of
// the tensor.
void fill_matrix(const Matrix& matrix, const Tensor& tensor, int pass, Uploader& uploader,
                 Buffer& staging);

// Returns the same values as float32, or the matrix itself if it is float32 already.
DenseMatrix widen(const DenseMatrix& matrix, Stream stream);

}  // namespace walsh::cuda
