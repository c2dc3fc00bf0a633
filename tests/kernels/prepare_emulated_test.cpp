// Runs the GPU tests of prepared inputs with kernels on the host (emulated/device.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
//
#include "kernels/emulated/device.h"
//
#define GpuPrepare EmulatedPrepare
#include "kernels/cuda/prepare_test.cpp"
