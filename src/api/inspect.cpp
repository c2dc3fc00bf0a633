#include "base/stop.h"
#include "codec/tensor.h"
#include "walsh/quantizer.h"
#include "weights/hub_cache.h"
#include "weights/walsh_file.h"
#include "weights/walsh_folder.h"

namespace walsh {
namespace {

// A folder stores no checksums and errors, so a check can only find unreadable tensors.
FileSummary inspect_folder(const std::string& path) {
  const auto folder = WalshFolder::open(path);
  FileSummary summary = {0, folder->producer(), folder->recipe(), 0, {}};
  double weights = 0, bits = 0;
  for (const std::string& name : folder->names()) {
    check_stop();
    const Tensor t = folder->load(name);
    const uint64_t bytes = tensor_bytes(*t.format, t.rows, t.cols);
    const bool coded = !t.format->dense;
    summary.tensors.push_back(
        {name, std::string(t.format->name), "", t.rows, t.cols, bytes, 0, coded, ""});
    summary.bytes += bytes;
    folder->release(name);
    if (!coded) continue;
    weights += static_cast<double>(t.rows) * static_cast<double>(t.cols);
    bits += 8.0 * static_cast<double>(bytes);
  }
  if (weights > 0) summary.bits_per_weight = bits / weights;
  return summary;
}

}  // namespace

FileSummary inspect(const std::string& model, bool check) {
  const std::string path = found_model(model);
  if (is_walsh_folder(path)) return inspect_folder(path);
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
