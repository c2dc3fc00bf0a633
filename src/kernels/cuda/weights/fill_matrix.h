// Matrices whose memory is made apart from their content.
#pragma once

#include "kernels/cuda/weights/matrix.h"

namespace walsh::cuda {

// Sends pass `pass` of a tensor to the memory of a matrix that allocate_matrix made for it; else as
// upload_matrix.
void fill_matrix(const Matrix& matrix, const Tensor& tensor, int pass, Uploader& uploader,
                 Buffer& staging);

// The same values as float32; the matrix itself if it has them.
DenseMatrix widen(const DenseMatrix& matrix, Stream stream);

}  // namespace walsh::cuda
