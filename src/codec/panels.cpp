#include "codec/panels.h"

#include "codec/codec.h"

namespace walsh {

PanelMatrix pack_panels(const Tensor& tensor, int pass) {
  const Codec& codec = codec_of(*tensor.format);
  PanelMatrix w = codec.pack(tensor, pass);
  w.codec = &codec;
  return w;
}

void unpack_codes(const PanelMatrix& w, std::span<std::byte> codes) {
  w.codec->unpack(w, codes);
}

}  // namespace walsh
