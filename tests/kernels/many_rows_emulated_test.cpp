// Tests kernels for many rows, run on the host (emulated/device.h) with a device so small that few
// rows count as many.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>
//
#include "kernels/emulated/device.h"
//
#include "kernels/cuda/launch.h"
#include "kernels/cuda/many_rows_data.h"
#include "kernels/cuda/rope_data.h"
#include "kernels/cuda/rows/prepare_many.cuh"

namespace walsh::cuda {
namespace {

class ManyRowsKernels : public testing::Test {
 protected:
  ManyRowsKernels() { emulated::multiprocessors = 1; }
  ~ManyRowsKernels() override { emulated::multiprocessors = before_; }

 private:
  int before_ = emulated::multiprocessors;
};

TEST_F(ManyRowsKernels, MakeInputsWithTheBitsOfFewRows) {
  for (const ManyCase& c : many_cases()) {
    emulated::multiprocessors = c.tiles() > 8 ? 3 : 1;
    expect_many_rows(c, emulated::multiprocessors);
  }
}

TEST_F(ManyRowsKernels, AddUpExpertsWithTheBitsOfOneRow) {
  for (const int chosen : {1, 3, 8, 11})
    expect_many_sums(1000, chosen, 1);
  expect_many_sums(1028, 2, 1);
}

TEST_F(ManyRowsKernels, TurnHeadsWithTheBitsOfTheCpu) {
  for (const int dim : {24, 64, 80, 128, 256}) {
    expect_rope(dim, dim, 5, 1, 31, true);
    expect_rope(dim, dim / 2, 4, 6, 15, dim > 64, true);
  }
  expect_rope(128, 0, 9, 4, 13, true);
  expect_rope(128, 96, 8, 5, 11, false);
}

// These shapes are on a device with 132 multiprocessors.
struct Expected {
  int64_t width, m;
  bool norm;
  int warps, blocks;  // 0: few rows
};

TEST_F(ManyRowsKernels, FillTheDeviceAndLeaveWhatTheyDoNotTake) {
  const Expected all[] = {
      {2048, 4096, true, 8, 528},  {2048, 4096, false, 8, 528}, {768, 32768, false, 8, 528},
      {768, 32768, true, 6, 660},  {5120, 4096, true, 20, 132}, {8192, 4096, true, 32, 132},
      {4096, 4096, true, 16, 264}, {2048, 264, true, 8, 264},   {2048, 263, true, 0, 0},
      {8448, 4096, true, 0, 0},    {8448, 4096, false, 8, 528}, {2048, 16, false, 0, 0},
      {96, 4225, true, 8, 528},    {301, 65536, false, 0, 0},
  };
  for (const Expected& e : all) {
    SCOPED_TRACE(testing::Message() << e.m << " x " << e.width);
    alignas(16) static float values[4];
    Activations out;
    out.cols = divide_up(e.width, kPaddedColumns) * kPaddedColumns;
    out.max_m = e.m;
    InputSource source;
    source.x = values;
    source.gain = e.norm ? values : nullptr;
    source.ldx = source.width = e.width;
    InputForm form;
    form.rotation = Rotation{.block = 128};
    form.padded = divide_up(e.width, 32) * 32;
    form.out = &out;
    const ManyRows shape = many_rows(input_view(source), form_view(source, form, e.m), e.m, 132);
    EXPECT_EQ(shape.blocks, e.blocks);
    EXPECT_EQ(shape.warps, e.warps);
    form.rotation.block = 512;
    EXPECT_EQ(many_rows(input_view(source), form_view(source, form, e.m), e.m, 132).blocks, 0);
  }
}

}  // namespace
}  // namespace walsh::cuda
