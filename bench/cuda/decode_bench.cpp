// Measures decode products, which memory bounds. Weights are cold (more than 2 GB take turns), and
// launches in a graph follow each other, including norm, rotation and quantization of the input.
//
// bench_decode [FORMAT | ROWSxCOLS | m=N]...     without arguments a table of all
//
// m=-1, -2 and -4 mean 1, 2 and 4 vectors as phases of one launch, each of which reads the results
// of the one before; for a shape that is not square, the time is that of the product and one with
// its transpose together. Wide shapes (columns > 2 rows) are down projections, whose input is the
// product of silu and up instead of a norm.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/cuda/device.h"
#include "base/random.h"
#include "kernels/cuda/gemv/gemv.h"
#include "kernels/cuda/persistent/program.h"

namespace walsh::cuda {
namespace {

constexpr double kPeakBytes = 4.64e12;  // this is the measured read bandwidth of an H200
constexpr uint64_t kRotatingBytes = uint64_t{2200} << 20;
constexpr int kReplays = 11;

struct Shape {
  int64_t rows, cols;
};

// Returns the seconds per launch sequence among `count`, captured in a graph.
double seconds_per_call(int count, const std::function<void(int, Stream)>& call) {
  const OwnedStream stream;
  call(0, stream.get());
  stream.synchronize();
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "capture");
  for (int i = 0; i < count; ++i)
    call(i, stream.get());
  check(cudaStreamEndCapture(stream.get(), &graph), "capture");
  check(cudaGraphInstantiate(&executable, graph, 0), "graph");
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  std::vector<float> times;
  for (int i = 0; i < kReplays; ++i) {
    check(cudaEventRecord(begin, stream.get()), "event");
    check(cudaGraphLaunch(executable, stream.get()), "graph");
    check(cudaEventRecord(end, stream.get()), "event");
    stream.synchronize();
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "event");
    times.push_back(ms);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2] * 1e-3 / count;
}

// Returns the seconds per phase of a program with `count` phases.
double seconds_per_phase(int count, const PersistentProgram& program, int rows) {
  return seconds_per_call(1, [&](int, Stream stream) { program.launch(stream, rows); }) / count;
}

// Returns random words on the device, at least as large as any array filled from them.
Buffer random_words(uint64_t bytes, uint32_t mask, uint32_t bits) {
  std::vector<uint32_t> words(bytes / 4);
  Random random(1);
  for (uint32_t& w : words)
    w = (static_cast<uint32_t>(random.next()) & mask) | bits;
  Buffer buffer(bytes);
  copy_to_device(buffer.as(), words.data(), bytes, nullptr);
  synchronize(nullptr);
  return buffer;
}

void fill_from(const Buffer& target, const Buffer& source) {
  for (uint64_t done = 0; done < target.bytes(); done += source.bytes()) {
    const uint64_t n = std::min(source.bytes(), target.bytes() - done);
    check(cudaMemcpyAsync(target.as<std::byte>() + done, source.as(), n, cudaMemcpyDeviceToDevice,
                          nullptr),
          "copy");
  }
}

InputForm form_of(const Format& format, int64_t width, Activations& out) {
  InputForm form;
  form.rotation.kind = format.rotation_block ? RotationKind::hadamard : RotationKind::none;
  form.rotation.block = std::min(format.rotation_block, 256);
  form.padded = width;
  form.out = &out;
  return form;
}

struct Bench {
  Buffer words = random_words(uint64_t{16} << 20, ~0u, 0);
  // These are about 0.01.
  Buffer halves = random_words(uint64_t{1} << 20, 0x03ff03ffu, 0x20002000u);

  Matrix matrix(const Format& format, Shape shape) const {
    Buffer zeros(static_cast<uint64_t>(shape.rows * shape.cols), true);
    Matrix m = pack_matrix(format, 0, shape.rows, shape.cols,
                           {zeros.as(), zeros.as(), zeros.as(), zeros.as(), zeros.as(), zeros.as()},
                           nullptr);
    fill(m);
    return m;
  }

  void fill(const Matrix& m) const {
    fill_from(m.codes, words);
    fill_from(m.scales, halves);
    if (!m.offsets.empty()) fill_from(m.offsets, halves);
    if (!m.row_factors.empty()) fill_from(m.row_factors, halves);
  }

  // Returns a matrix of the same shape with its own memory.
  Matrix copy(const Matrix& m) const {
    Matrix c = m;
    c.codes = Buffer(m.codes.bytes());
    c.scales = Buffer(m.scales.bytes());
    if (!m.offsets.empty()) c.offsets = Buffer(m.offsets.bytes());
    fill(c);
    return c;
  }

  void coded(const Format& format, Shape shape, const std::vector<int64_t>& ms) const {
    std::vector<Matrix> weights{matrix(format, shape)};
    const uint64_t bytes = weights[0].bytes();
    const int count = static_cast<int>(std::max<uint64_t>(2, kRotatingBytes / bytes));
    while (static_cast<int>(weights.size()) < count)
      weights.push_back(copy(weights[0]));
    Buffer x = random_words(static_cast<uint64_t>(17 * shape.cols) * 4, 0x807fffffu, 0x3f000000u);
    Buffer gain = random_words(static_cast<uint64_t>(shape.cols) * 4, 0x007fffffu, 0x3f000000u);
    Buffer y(static_cast<uint64_t>(16 * shape.rows) * 4);
    Activations inputs(16, shape.cols, format.rotation_block ? 128 : 32, format.activation_planes);
    const bool down = shape.cols > 2 * shape.rows;
    InputSource source{x.as<float>(), nullptr, gain.as<float>(), 1e-5f, shape.cols, shape.cols};
    if (down) {
      source.gain = nullptr;
      source.up = x.as<float>() + 4;
    }
    const InputForm form = form_of(format, shape.cols, inputs);
    const auto product = [&](int i) {
      Matmul p;
      p.pass[0] = &weights[static_cast<size_t>(i)];
      p.input[0] = &inputs;
      p.y = y.as<float>();
      p.ldy = shape.rows;
      return p;
    };
    std::printf("%-10s %6ld x %-6ld", std::string(format.name).c_str(), shape.rows, shape.cols);
    for (const int64_t m : ms) {
      if (m < 0) {
        as_phases(format, weights, shape, static_cast<int>(-m));
        continue;
      }
      const double seconds = seconds_per_call(count, [&](int i, Stream stream) {
        const Matmul p = product(i);
        prepare(source, {&form, 1}, m, stream);
        gemv({&p, 1}, m, stream);
      });
      std::printf(" | %6.2f %5.1f %%", seconds * 1e6,
                  static_cast<double>(bytes) / seconds / kPeakBytes * 100);
    }
    std::printf("\n");
    std::fflush(stdout);
  }

  // Measures products of rows with a norm, and with the transposes, as phases.
  void as_phases(const Format& format, const std::vector<Matrix>& weights, Shape shape,
                 int rows) const {
    const auto group = format.rotation_block ? 128 : 32;
    const int64_t widths[] = {shape.cols, shape.rows};
    const size_t steps = weights.size() / 2;
    std::vector<Matrix> back;
    const Matrix transposed = matrix(format, {shape.cols, shape.rows});
    while (shape.rows != shape.cols && back.size() < steps)
      back.push_back(copy(transposed));
    const Buffer gain =
        random_words(static_cast<uint64_t>(shape.cols) * 4, 0x007fffffu, 0x3f000000u);
    std::vector<Buffer> x;
    std::vector<Activations> inputs;
    for (const int64_t width : widths) {
      const auto size = static_cast<uint64_t>(rows * width) * 4;
      x.push_back(random_words(size, 0x807fffffu, 0x3f000000u));
      inputs.emplace_back(rows, width, group, format.activation_planes);
    }
    PersistentProgram program(rows);
    bool possible = true;
    for (size_t i = 0; i < 2 * steps && possible; ++i) {
      const size_t from = i % 2, to = 1 - from;
      const InputForm form = form_of(format, widths[from], inputs[from]);
      InputSource source{x[from].as<float>(), nullptr, nullptr, 1e-5f, widths[from], widths[from]};
      if (from == 0) source.gain = gain.as<float>();
      Matmul p;
      p.pass[0] = from == 1 && !back.empty() ? &back[i / 2] : &weights[i];
      p.input[0] = &inputs[from];
      p.y = x[to].as<float>();
      p.ldy = widths[to];
      possible = program.multiply(source, {&form, 1}, {&p, 1});
    }
    if (!possible || !program.finish()) {
      std::printf(" |      -        ");
      return;
    }
    const bool square = back.empty();
    const int calls = static_cast<int>(square ? 2 * steps : steps);
    const double seconds = seconds_per_phase(calls, program, rows);
    const uint64_t bytes = weights[0].bytes() + (square ? 0 : transposed.bytes());
    std::printf(" | %6.2f %5.1f %%", seconds * 1e6,
                static_cast<double>(bytes) / seconds / kPeakBytes * 100);
  }

  void plain(DType type, Shape shape, const std::vector<int64_t>& ms) const {
    const uint64_t bytes = static_cast<uint64_t>(shape.rows * shape.cols * dtype_size(type));
    const int count = static_cast<int>(std::max<uint64_t>(2, kRotatingBytes / bytes));
    std::vector<DenseMatrix> weights;
    for (int i = 0; i < count; ++i) {
      weights.push_back({type, shape.rows, shape.cols, Buffer(bytes)});
      fill_from(weights.back().data, halves);
    }
    Buffer x = random_words(static_cast<uint64_t>(16 * shape.cols) * 4, 0x807fffffu, 0x3f000000u);
    Buffer y(static_cast<uint64_t>(16 * shape.rows) * 4);
    std::printf("%-10s %6ld x %-6ld", std::string(dtype_name(type)).c_str(), shape.rows,
                shape.cols);
    for (const int64_t m : ms) {
      if (m < 0) {
        std::printf(" |      -      ");
        continue;
      }
      const double seconds = seconds_per_call(count, [&](int i, Stream stream) {
        DenseMatmul p;
        p.weights = &weights[static_cast<size_t>(i)];
        p.x = x.as<float>();
        p.ldx = shape.cols;
        p.y = y.as<float>();
        p.ldy = shape.rows;
        gemv({&p, 1}, m, stream);
      });
      std::printf(" | %6.2f %5.1f %%", seconds * 1e6,
                  static_cast<double>(bytes) / seconds / kPeakBytes * 100);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
};

void run(const std::vector<std::string>& names, const std::vector<Shape>& shapes,
         const std::vector<int64_t>& ms) {
  const Bench bench;
  std::printf("us and share of 4.64 TB/s; columns: m (below 0: a phase of so many) =");
  for (const int64_t m : ms)
    std::printf(" %ld", m);
  std::printf("\n");
  for (const std::string& name : names) {
    const Format& format = get_format(name);
    for (const Shape& shape : shapes) {
      if (format.dense) {
        bench.plain(format.dtype, shape, ms);
      } else {
        bench.coded(format, shape, ms);
      }
    }
  }
}

}  // namespace
}  // namespace walsh::cuda

int main(int argc, char** argv) {
  if (walsh::cuda::devices().empty()) {
    std::printf("no CUDA device: %s\n", walsh::cuda::unavailable_reason().c_str());
    return 1;
  }
  std::vector<std::string> names;
  std::vector<walsh::cuda::Shape> shapes;
  std::vector<int64_t> ms;
  for (int i = 1; i < argc; ++i) {
    long rows = 0, cols = 0;
    if (std::sscanf(argv[i], "%ldx%ld", &rows, &cols) == 2) {
      shapes.push_back({rows, cols});
    } else if (std::sscanf(argv[i], "m=%ld", &rows) == 1) {
      if (rows != -1 && rows != -2 && rows != -4 && (rows < 1 || rows > 16)) {
        std::printf("%s: expected m=-1, -2, -4 or 1 to 16\n", argv[i]);
        return 2;
      }
      ms.push_back(rows);
    } else {
      names.push_back(argv[i]);
    }
  }
  if (names.empty()) names = {"itq3_s", "tq3", "tq4", "tq2", "q4_0", "q8_0", "bf16"};
  if (shapes.empty())
    shapes = {{4096, 4096}, {14336, 4096}, {4096, 14336}, {8192, 8192}, {28672, 8192}};
  if (ms.empty()) ms = {-1, -2, -4, 1, 2, 4, 8, 16};
  walsh::cuda::run(names, shapes, ms);
}
