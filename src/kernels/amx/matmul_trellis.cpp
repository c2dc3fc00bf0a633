// Multiplies matrices of trellis codes with 16 and more vectors on AMX.
#include "codec/trellis/avx512vbmi/trellis_decoder.h"
#include "kernels/amx/tiles.h"
#include "kernels/avx512/matmul_vnni.h"
#include "kernels/isa_tables.h"

namespace walsh::amx {

void matmul_trellis(const PanelMatmul& call) {
  avx512::IntegerMatmul<Int8Tiles>::run_trellis<avx512vbmi::TrellisDecoder>(call);
}

}  // namespace walsh::amx
