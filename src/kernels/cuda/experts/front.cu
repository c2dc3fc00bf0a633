// Launches two kinds of blocks at once (front.h). The first ones multiply rows of a small matrix
// with all inputs; the others prepare inputs. Each block computes the norms of its inputs itself,
// so that no block waits for another, except for the choice of experts, made by the last of the
// multiplying blocks.
#include "kernels/cuda/experts/front.h"

#include <string>

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/dynamic_shared.cuh"
#include "kernels/cuda/experts/warp_lanes.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/rows/prepare_row.cuh"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

constexpr int kWarps = kPrepareWarps, kThreads = kWarps * 32;
constexpr int kMostKTiles = kMostFrontColumns / kKTileColumns;
constexpr int kMostInputs = 4;   // A block takes at most this many inputs.
constexpr int kLineFloats = 32;  // A line has 128 bytes.

struct ProductView {
  const float* weights = nullptr;
  const float* bias = nullptr;
  float* y = nullptr;
  int64_t ldy = 0;
  int rows = 0;
  int first_block = 0;
};

struct FrontArgs {
  InputView in;
  FormView form[kMostFrontForms];
  ProductView product[kMostFrontProducts];
  int products = 0;
  // product_blocks counts the blocks of all products, form_blocks those per row of a form.
  int product_blocks = 0, form_blocks = 0;
  int m = 0, input_groups = 1;  // `input_groups` blocks share the inputs of a product's rows.
  bool routes = false, grouped = false;
  int per_item = 1;
  RouteCall route;
  SlotArrays slots;
  int32_t* arrived = nullptr;
};

// Computes 1 / rms of m inputs from `first` on, as prepare() does, a k-tile of a row at a time.
__device__ __forceinline__ void find_norms(const InputView& in, int first, int m, int warp,
                                           int lane, float (&inverse)[kMostInputs]) {
  __shared__ double squares[kMostInputs * kMostKTiles];
  const int k_tiles = (in.width + kKTileColumns - 1) / kKTileColumns;
#pragma unroll 2
  for (int i = warp; i < m * k_tiles; i += kWarps) {
    const int t = i / k_tiles, k_tile = i - t * k_tiles;
    float v[kLaneColumns];
    load_input(in, first + t, k_tile * kKTileColumns + lane * kLaneColumns, v);
    const double sum = k_tile_squares(v);
    if (lane == 0) squares[i] = sum;
  }
  __syncthreads();
  for (int t = warp; t < m; t += kWarps) {
    double share = 0;
    for (int k_tile = lane % kShares; k_tile < k_tiles; k_tile += kShares)
      share += squares[t * k_tiles + k_tile];
    const float factor = inverse_rms(in, share);
    if (lane == 0) inverse[t] = factor;
  }
  __syncthreads();
}

// Adds a lane's share of the products of R rows of a matrix, from `first` on, with T inputs.
template <int R, int T>
__device__ __forceinline__ void add_products(const FrontArgs& args, const ProductView& product,
                                             int first, int first_input,
                                             const float (&inverse)[kMostInputs], int warp,
                                             int lane, float (&sum)[R][T]) {
  const InputView& in = args.in;
  for (int k_tile = warp; k_tile * kKTileColumns < in.width; k_tile += kWarps) {
    const int column = k_tile * kKTileColumns + lane * kLaneColumns;
    float gain[kLaneColumns], x[T][kLaneColumns];
    if (in.gain) load8(in.gain, column, in, gain);
#pragma unroll
    for (int t = 0; t < T; ++t) {
      const int input = first_input + t;
#pragma unroll
      for (int e = 0; e < kLaneColumns; ++e)
        x[t][e] = 0;
      if (input >= args.m) continue;
      load_input(in, input, column, x[t]);
      if (in.gain) apply_norm(gain, inverse[t], x[t]);
    }
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const int row = first + r < product.rows ? first + r : product.rows - 1;
      float weight[kLaneColumns];
      load8(product.weights + int64_t{row} * in.width, column, in, weight);
#pragma unroll
      for (int t = 0; t < T; ++t) {
#pragma unroll
        for (int e = 0; e < kLaneColumns; ++e)
          sum[r][t] = fmaf(weight[e], x[t][e], sum[r][t]);
      }
    }
  }
}

// Computes rows [first, first + R) of a product with T inputs, in one block.
template <int R, int T>
__device__ __forceinline__ void multiply_rows(const FrontArgs& args, const ProductView& product,
                                              int first, int first_input,
                                              const float (&inverse)[kMostInputs], int warp,
                                              int lane) {
  __shared__ float parts[kWarps][R * T];
  float sum[R][T] = {};
  add_products<R, T>(args, product, first, first_input, inverse, warp, lane, sum);
#pragma unroll
  for (int r = 0; r < R; ++r) {
#pragma unroll
    for (int t = 0; t < T; ++t) {
#pragma unroll
      for (int distance = 16; distance > 0; distance /= 2)
        sum[r][t] += __shfl_xor_sync(~0u, sum[r][t], distance);
      if (lane == 0) parts[warp][r * T + t] = sum[r][t];
    }
  }
  __syncthreads();
  const int thread = warp * 32 + lane, row = first + thread / T, input = first_input + thread % T;
  if (thread >= R * T || row >= product.rows || input >= args.m) return;
  float total = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w)
    total += parts[w][thread];
  if (product.bias != nullptr) total += product.bias[row];
  product.y[input * product.ldy + row] = total;
}

// Chooses the experts of all rows, in the block that finishes last.
__device__ __forceinline__ void choose(const FrontArgs& args, unsigned char* memory, int warp) {
  __shared__ bool last;
  const int thread = static_cast<int>(threadIdx.x);
  __threadfence();
  __syncthreads();
  if (thread == 0) last = atomicAdd(args.arrived, 1) == args.product_blocks - 1;
  __syncthreads();
  if (!last) return;
  __threadfence();
  if (thread == 0) *args.arrived = 0;
  const RouteRule& rule = args.route.rule;
  const RouteScratch scratch = RouteScratch::at(memory + warp * RouteScratch::bytes(rule), rule);
  auto* choices = reinterpret_cast<int32_t*>(memory + kWarps * RouteScratch::bytes(rule));
  for (int row = warp; row < args.m; row += kWarps) {
    const float* logits = args.route.logits + int64_t{row} * rule.experts;
    route_by_warp(args.route, row, scratch, [&](int i) { return __ldcg(logits + i); });
    if (!args.grouped) keep_order_by_warp(args.route, row, scratch, args.slots);
    for (int k = WarpLanes::index(); k < rule.chosen; k += 32)
      choices[row * rule.chosen + k] = scratch.chosen[k];
    __syncwarp();  // The scratch has been read.
  }
  if (!args.grouped) return;
  __syncthreads();
  for (int expert = thread; expert < rule.experts; expert += kThreads)
    group_expert(SingleLane(), choices, args.m * rule.chosen, rule.chosen, expert, args.per_item,
                 args.slots);
}

template <int R, int T>
__device__ __forceinline__ void multiply(const FrontArgs& args, int block, unsigned char* memory) {
  static_assert(T <= kMostInputs);
  __shared__ float inverse[kMostInputs];
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int group = block % args.input_groups, first_input = group * T;
  block /= args.input_groups;
  int p = 0;
  while (p + 1 < args.products && block >= args.product[p + 1].first_block)
    ++p;
  const ProductView& product = args.product[p];
  const int first = (block - product.first_block) * R;
  const int rows = product.rows - first < R ? product.rows - first : R;
  const float* weights = product.weights + int64_t{first} * args.in.width;
  const int64_t floats = int64_t{rows} * args.in.width;
  for (int64_t i = int64_t{threadIdx.x} * kLineFloats; i < floats; i += kThreads * kLineFloats)
    prefetch(weights + i);
  wait_previous_kernel();
  if (args.in.gain)
    find_norms(args.in, first_input, min(T, args.m - first_input), warp, lane, inverse);
  multiply_rows<R, T>(args, product, first, first_input, inverse, warp, lane);
  if (args.routes) choose(args, memory, warp);
}

// Runs both kinds of blocks. The grid has blocks of products, then blocks of inputs, ordered by
// form, row and part.
template <int Span, int R, int T>
__global__ void __launch_bounds__(kThreads, 1)
    front_kernel(const __grid_constant__ FrontArgs args) {
  WALSH_DYNAMIC_SHARED(unsigned char, memory);
  allow_next_kernel();
  int block = static_cast<int>(blockIdx.x);
  if (block < args.product_blocks) return multiply<R, T>(args, block, memory);
  block -= args.product_blocks;
  const int row = block / args.form_blocks, form = row / args.m, t = row - form * args.m;
  prepare_row<Span>(
      args.in, args.form[form], t, block - row * args.form_blocks,
      [&](int column, float(&v)[kLaneColumns]) { load_input(args.in, t, column, v); });
}

using FrontKernel = void (*)(const FrontArgs);

struct FrontChoice {
  FrontKernel kernel;
  int rows, inputs;  // A block takes this many rows and inputs.
};

template <int Span>
FrontChoice choose_kernel(int64_t m) {
  if (m == 1) return {front_kernel<Span, 1, 1>, 1, 1};
  return {front_kernel<Span, 4, 4>, 4, kMostInputs};
}

void check_front(const FrontCall& call) {
  bool known = call.m > 0 && call.m <= kMaxVectors && call.forms.size() <= kMostFrontForms &&
               !call.products.empty() && call.products.size() <= kMostFrontProducts &&
               call.source.width <= kMostFrontColumns;
  for (const FrontProduct& p : call.products)
    known = known && p.rows > 0 && p.rows <= kMostFrontRows;
  if (call.route != nullptr && known)
    known = call.route->call.m == call.m && call.products[0].rows == call.route->call.rule.experts;
  if (known) return;
  throw Error(ErrorCode::internal, "GPU front",
              std::to_string(call.forms.size()) + " forms and " +
                  std::to_string(call.products.size()) + " products of " + std::to_string(call.m) +
                  " inputs of " + std::to_string(call.source.width) + " values");
}

size_t add_route(const FrontRoute& route, FrontArgs& args) {
  check_routing(route.call);
  args.routes = true;
  args.grouped = route.plan.grouped();
  args.per_item = route.plan.per_item;
  args.route = route.call;
  args.slots = route.slots;
  args.arrived = route.arrived;
  const RouteRule& rule = route.call.rule;
  return static_cast<size_t>(kWarps * RouteScratch::bytes(rule)) +
         static_cast<size_t>(args.m * rule.chosen) * sizeof(int32_t);
}

}  // namespace

void front(const FrontCall& call, Stream stream) {
  if (call.m == 0) return;
  check_front(call);
  FrontArgs args;
  args.in = input_view(call.source);
  args.m = static_cast<int>(call.m);
  for (size_t i = 0; i < call.forms.size(); ++i)
    args.form[i] = form_view(call.source, call.forms[i], call.m);
  const PrepareShape shape = prepare_shape({args.form, call.forms.size()});
  args.form_blocks = shape.blocks;
  const FrontChoice chosen = shape.span == 1 ? choose_kernel<1>(call.m) : choose_kernel<4>(call.m);
  for (const FrontProduct& p : call.products) {
    const auto rows = static_cast<int>(p.rows);
    args.product[args.products++] = {p.weights, p.bias, p.y, p.ldy, rows, args.product_blocks};
    args.product_blocks += (rows + chosen.rows - 1) / chosen.rows;
    args.in.vectors = args.in.vectors && is_aligned(p.weights);
  }
  args.input_groups = (args.m + chosen.inputs - 1) / chosen.inputs;
  args.product_blocks *= args.input_groups;
  const size_t shared = call.route != nullptr ? add_route(*call.route, args) : 0;
  const int64_t blocks = args.product_blocks + int64_t{args.form_blocks} * args.m *
                                                   static_cast<int64_t>(call.forms.size());
  launch("front of a block", chosen.kernel,
         {dim3(static_cast<unsigned>(blocks)), dim3(kThreads), shared}, stream, args);
}

}  // namespace walsh::cuda
