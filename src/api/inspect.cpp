#include "base/stop.h"
#include "quantize/file/walsh_file.h"
#include "walsh/quantizer.h"

namespace walsh {

FileSummary inspect(const std::string& path, bool check) {
  const auto file = WalshFile::open(path);
  FileSummary summary = {file->file_bytes(), file->producer(), file->recipe(), 0, {}};
  double weights = 0, bits = 0;
  for (const StoredTensor& t : file->tensors()) {
    check_stop();
    if (check) file->verify(t);
    summary.tensors.push_back({t.name, std::string(t.format->name), t.source_type, t.rows, t.cols,
                               t.bytes, t.nmse, t.linear, t.checksum.hex()});
    if (!t.linear) continue;
    weights += static_cast<double>(t.rows) * static_cast<double>(t.cols);
    bits += 8.0 * static_cast<double>(t.bytes);
  }
  if (weights > 0) summary.bits_per_weight = bits / weights;
  return summary;
}

}  // namespace walsh
