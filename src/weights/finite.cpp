#include "weights/finite.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "io/printable.h"
#include "walsh/error.h"

namespace walsh {

void check_finite(const Tensor& tensor, const std::string& where) {
  constexpr int64_t kRows = 64;
  std::vector<float> values(static_cast<size_t>(std::min(kRows, tensor.rows) * tensor.cols));
  for (int64_t begin = 0; begin < tensor.rows; begin += kRows) {
    const int64_t end = std::min(begin + kRows, tensor.rows);
    decode_rows(tensor, begin, end, values.data());
    const auto last = values.begin() + static_cast<ptrdiff_t>((end - begin) * tensor.cols);
    if (std::all_of(values.begin(), last, [](float v) { return std::isfinite(v); })) continue;
    throw Error(ErrorCode::bad_input, where, "holds values that are not finite");
  }
}

void check_finite(WeightSource& source) {
  for (const std::string& name : source.names()) {
    check_finite(source.load(name), source.path() + ": tensor " + printable(name));
    source.release(name);
  }
}

}  // namespace walsh
