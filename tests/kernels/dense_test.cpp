#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "base/random.h"
#include "kernels/ops.h"

namespace walsh {
namespace {

constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16};

// Holds random weights that start `offset` bytes into an aligned array, as in a file.
struct Problem {
  DType type;
  int64_t rows, cols, m, ldx, ldy;
  size_t offset;
  AlignedArray<std::byte> bytes;
  std::vector<double> w;  // the stored values
  std::vector<float> x;

  Problem(DType t, int64_t row_count, int64_t col_count, int64_t tokens, size_t shift = 2)
      : type(t),
        rows(row_count),
        cols(col_count),
        m(tokens),
        ldx(col_count + 3),
        ldy(row_count + 2),
        offset(shift),
        bytes(static_cast<size_t>(rows * cols * dtype_size(t)) + shift) {
    Random random(static_cast<uint64_t>(rows + 31 * cols + 1009 * m));
    for (size_t i = 0; i < static_cast<size_t>(rows * cols); ++i) {
      const auto v = static_cast<float>(random.normal());
      if (type == DType::f32) {
        std::memcpy(bytes.data() + offset + 4 * i, &v, 4);
        w.push_back(v);
      } else {
        const uint16_t h = type == DType::f16 ? f32_to_f16(v) : f32_to_bf16(v);
        std::memcpy(bytes.data() + offset + 2 * i, &h, 2);
        w.push_back(type == DType::f16 ? f16_to_f32(h) : bf16_to_f32(h));
      }
    }
    for (int64_t i = 0; i < m * ldx; ++i)
      x.push_back(static_cast<float>(random.normal()));
  }

  std::vector<float> run(Isa isa, int64_t begin, int64_t end) const {
    std::vector<float> y(static_cast<size_t>(m * ldy), -7.0f);
    ops(isa).matmul_dense(type, bytes.data() + offset, cols, x.data(), ldx, m, y.data(), ldy, begin,
                          end);
    return y;
  }
};

void expect_product(const Problem& p, int64_t begin, int64_t end) {
  for (const Isa isa : supported_isas()) {
    const auto y = p.run(isa, begin, end);
    for (int64_t t = 0; t < p.m; ++t) {
      for (int64_t r = 0; r < p.ldy; ++r) {
        const float got = y[static_cast<size_t>(t * p.ldy + r)];
        if (r < begin || r >= end) {
          ASSERT_EQ(got, -7.0f) << "wrote outside the rows";
          continue;
        }
        double sum = 0, magnitude = 0;
        for (int64_t c = 0; c < p.cols; ++c) {
          const double product = p.w[static_cast<size_t>(r * p.cols + c)] *
                                 double{p.x[static_cast<size_t>(t * p.ldx + c)]};
          sum += product;
          magnitude += std::abs(product);
        }
        // A chain makes cols/8 + 4 roundings of 2^-24 of a partial sum, which add like a random
        // walk.
        const double steps = static_cast<double>(p.cols) / 8 + 4;
        ASSERT_NEAR(got, sum, magnitude * std::min(steps, 4 * std::sqrt(steps)) * 0x1p-24)
            << isa_name(isa) << " " << dtype_name(p.type) << " row " << r << " token " << t;
      }
    }
  }
}

TEST(MatmulDense, AgreesWithTheSumForAwkwardShapes) {
  for (const DType type : kTypes) {
    for (const int64_t cols : {1, 2, 17, 31, 33, 384, 1056, 1376}) {
      expect_product(Problem(type, 13, cols, 1), 0, 13);
      expect_product(Problem(type, 7, cols, 5), 0, 7);
    }
  }
}

TEST(MatmulDense, AgreesWithTheSumForEveryBatch) {
  for (const DType type : kTypes) {
    for (int64_t m = 1; m <= 40; ++m)
      expect_product(Problem(type, 9, 70, m), 0, 9);
  }
}

TEST(MatmulDense, WritesOnlyItsRows) {
  for (const DType type : kTypes) {
    for (int64_t begin = 0; begin < 6; ++begin) {
      expect_product(Problem(type, 11, 40, 3), begin, 11 - begin / 2);
      expect_product(Problem(type, 11, 40, 1), begin, begin);
    }
  }
}

TEST(MatmulDense, RowsLongerThanACacheBlockAndManyRows) {
  expect_product(Problem(DType::f32, 2, 70000, 2), 0, 2);
  expect_product(Problem(DType::bf16, 900, 300, 7), 1, 900);
}

TEST(MatmulDense, AnyAlignment) {
  for (const DType type : kTypes) {
    for (const size_t offset : {0u, 1u, 2u, 4u, 62u}) {
      expect_product(Problem(type, 6, 100, 4, offset), 0, 6);
    }
  }
}

TEST(MatmulDense, ATokenDoesNotDependOnItsBatchOrItsRowRange) {
  for (const DType type : kTypes) {
    const Problem p(type, 23, 205, 17);
    for (const Isa isa : supported_isas()) {
      const auto together = p.run(isa, 0, p.rows);
      for (int64_t t = 0; t < p.m; ++t) {
        std::vector<float> alone(static_cast<size_t>(p.rows));
        for (const int64_t split : {1, 5, 23}) {
          for (int64_t r = 0; r < p.rows; r += split) {
            ops(isa).matmul_dense(type, p.bytes.data() + p.offset, p.cols, p.x.data() + t * p.ldx,
                                  p.ldx, 1, alone.data(), p.ldy, r, std::min(p.rows, r + split));
          }
          for (int64_t r = 0; r < p.rows; ++r) {
            ASSERT_EQ(alone[static_cast<size_t>(r)], together[static_cast<size_t>(t * p.ldy + r)])
                << isa_name(isa);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace walsh
