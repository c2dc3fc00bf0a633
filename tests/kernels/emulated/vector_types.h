// Vectors are those of emulated/device.h.
#pragma once

#include "kernels/emulated/device.h"
