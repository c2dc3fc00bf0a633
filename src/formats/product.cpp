#include "formats/product.h"

#include <cstdlib>
#include <string>

#include "walsh/error.h"

namespace walsh {

void pack_product_row(const uint8_t* pointers, const uint8_t* negative, int64_t padded,
                      std::byte* row) {
  for (int64_t begin = 0; begin < padded; begin += kProductUnitColumns, row += kProductUnitBytes) {
    std::memcpy(row, pointers + begin / kProductValues, 8);
    for (int v = 0; v < 4; ++v) {
      int signs = 0;
      for (int n = 0; n < 8; ++n)
        signs |= negative[begin + 4 * n + v] << n;
      row[8 + v] = static_cast<std::byte>(signs);
    }
  }
}

void check_codebook(const ProductCode& code, const int8_t* codebook) {
  for (int i = 0; i < kCodebookBytes; ++i) {
    if (std::abs(int{codebook[i]}) + code.residual <= 127) continue;
    throw Error(ErrorCode::bad_input, "codebook",
                "entry " + std::to_string(i / kProductValues) + " has the value " +
                    std::to_string(int{codebook[i]}) + ", at most " +
                    std::to_string(127 - code.residual) + " is possible");
  }
}

}  // namespace walsh
