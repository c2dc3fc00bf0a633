#include "kernels/emulated/device.h"
//
#include "kernels/cuda/persistent/tile_share.cpp"
