// Computes the front of a branch, which is everything between the residual stream and the coded
// products, in one launch. It prepares the products' inputs, multiplies small plain matrices
// (routers, gates of shared experts, decays and strengths), and chooses experts by the first of
// these products.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/gemv/gemv.h"
#include "kernels/cuda/rows/prepare.h"

namespace walsh::cuda {

inline constexpr int kMostFrontForms = 4;
inline constexpr int kMostFrontProducts = kMaxMatmuls;
inline constexpr int64_t kMostFrontColumns = 16384;  // An input has at most this many columns.
inline constexpr int64_t kMostFrontRows = 1024;      // A matrix has at most this many rows.

// Describes y[t * ldy + row] = bias[row] + W x with a float32 matrix [rows][width of the input].
struct FrontProduct {
  const float* weights = nullptr;
  const float* bias = nullptr;  // It is [rows] or null.
  float* y = nullptr;
  int64_t ldy = 0, rows = 0;
};

// Asks for a choice by the results of the first product, [m][experts], which call.logits points to.
struct FrontRoute {
  RouteCall call;
  ExpertPlan plan;
  SlotArrays slots;
  int32_t* arrived = nullptr;  // It is one counter, zero before and after the launch.
};

struct FrontCall {
  InputSource source;
  std::span<const InputForm> forms;        // There are at most kMostFrontForms.
  std::span<const FrontProduct> products;  // There are one to kMostFrontProducts.
  const FrontRoute* route = nullptr;       // If it is null, nothing is chosen.
  int64_t m = 0;                           // It is at most kMaxVectors.
};

// Runs the front. Inputs have the bits of prepare(). Sums of products are float32, in an order that
// depends only on the width. Throws internal beyond the limits above.
void front(const FrontCall& call, Stream stream);

}  // namespace walsh::cuda
