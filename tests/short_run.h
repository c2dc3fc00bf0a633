// Says how often tests repeat; fewer times where a memory checker is used, which needs few
// repetitions.
#pragma once

#include <cstdlib>

namespace walsh::test {

// Returns `few` where WALSH_TEST_SHORT is set, which tools/gpu_check.sh --sanitizer does: under
// such a checker a launch takes a hundred times as long.
inline int times(int usual, int few) {
  return std::getenv("WALSH_TEST_SHORT") == nullptr ? usual : few;
}

}  // namespace walsh::test
