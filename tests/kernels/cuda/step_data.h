// Makes the parts of programs for the persistent kernel, for tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/cuda/graph.h"
#include "codec/codec.h"
#include "gemv_data.h"
#include "kernels/cuda/persistent/program.h"
#include "kernels/relative_error.h"
#include "short_run.h"

namespace walsh::cuda {

#define WALSH_NEED_STEPS() \
  WALSH_NEED_GPU();        \
  if (!PersistentProgram::available()) GTEST_SKIP() << "no GPU that runs the persistent kernel"

// Returns how often a program is launched, since blocks meet differently every time.
inline int launches() {
  return walsh::test::times(100, 1);
}

inline std::vector<Matrix> upload_passes(const Format& format, int64_t rows, int64_t cols,
                                         uint64_t seed) {
  const RandomTensor host(format, rows, cols, seed);
  std::vector<Matrix> passes;
  Uploader uploader;
  Buffer staging;
  for (int pass = 0; pass < format.passes; ++pass)
    passes.push_back(upload_matrix(host.tensor, pass, uploader, staging));
  uploader.synchronize();
  return passes;
}

// Holds the forms that the passes of a format read, and where they go.
struct Forms {
  std::vector<Activations> out;
  std::vector<InputForm> forms;

  Forms(const Format& format, int64_t cols, int64_t rows = 1) {
    out.reserve(2);
    for (int pass = 0; pass < format.passes; ++pass) {
      out.emplace_back(rows, divide_up(cols, kPaddedColumns) * kPaddedColumns,
                       format.rotation_block ? 128 : 32, format.activation_planes);
      InputForm& form = forms.emplace_back();
      form.rotation.kind = format.rotation_block ? RotationKind::hadamard : RotationKind::none;
      form.rotation.block = std::min(format.rotation_block, 256);
      form.rotation.seed = 7u + static_cast<uint32_t>(pass);
      form.padded = divide_up(cols, 32) * 32;
      form.out = &out.back();
    }
  }

  Forms(const Forms&) = delete;
  Forms& operator=(const Forms&) = delete;

  Matmul product(const std::vector<Matrix>& passes, float* y) const {
    Matmul p;
    for (size_t pass = 0; pass < passes.size(); ++pass) {
      p.pass[pass] = &passes[pass];
      p.input[pass] = forms[pass].out;
    }
    p.y = y;
    p.ldy = passes[0].rows;
    return p;
  }
};

// Runs a program, directly and as a recorded launch in turn.
class AlternateLaunches {
 public:
  AlternateLaunches(const PersistentProgram& program, Stream stream)
      : program_(program), stream_(stream) {}

  // Waits for the program's end.
  void run(int number) {
    if (number % 2 == 0) {
      program_.launch(stream_);
    } else {
      if (graph_.empty()) graph_ = Graph::record(stream_, [&] { program_.launch(stream_); });
      graph_.launch(stream_);
    }
    synchronize(stream_);
  }

 private:
  const PersistentProgram& program_;
  const Stream stream_;
  Graph graph_;
};

}  // namespace walsh::cuda
