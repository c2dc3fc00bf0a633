#include "walsh/quantizer.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "io/checksum.h"
#include "lost_files.h"
#include "module.h"

namespace walsh::python {
namespace {

void bind_options(nb::module_& module) {
  using Options = CompressOptions;
  nb::class_<Options>(module, "CompressOptions")
      .def(nb::init<>())
      .def_rw("type", &Options::type)
      .def_rw("embed_type", &Options::embed_type)
      .def_rw("head_type", &Options::head_type)
      .def_rw("overrides", &Options::overrides)
      .def_rw("ignore", &Options::ignore)
      .def_rw("rotation", &Options::rotation)
      .def_rw("rotate", &Options::rotate)
      .def_rw("block", &Options::block)
      .def_rw("signs", &Options::signs)
      .def_rw("seed", &Options::seed)
      .def_rw("balance", &Options::balance)
      .def_rw("fast", &Options::fast)
      .def_rw("shape_gain", &Options::shape_gain)
      .def_rw("calibrate", &Options::calibrate)
      .def_rw("calibrate_tokens", &Options::calibrate_tokens)
      .def_rw("curvature", &Options::curvature)
      .def_rw("bits_per_weight", &Options::bits_per_weight)
      .def_rw("file_bytes", &Options::file_bytes)
      .def_rw("allocate_text", &Options::allocate_text)
      .def_rw("output_format", &Options::output_format)
      .def_rw("recipe", &Options::recipe);
}

nb::dict tensor_dict(const TensorSummary& t) {
  nb::dict tensor;
  tensor["name"] = t.name;
  tensor["type"] = t.type;
  tensor["source_type"] = t.source_type;
  tensor["shape"] = nb::make_tuple(t.rows, t.cols);
  tensor["bytes"] = t.bytes;
  tensor["nmse"] = t.nmse;
  tensor["linear"] = t.linear;
  tensor["checksum"] = t.checksum;
  return tensor;
}

nb::dict inspect_file(const nb::bytes& path, bool check) {
  FileSummary summary;
  const std::string name = path_of(path);
  run_interruptible([&] { reading_files(name, [&] { summary = inspect(name, check); }); });
  nb::dict result;
  result["bytes"] = summary.bytes;
  result["producer"] = summary.producer;
  result["recipe"] = summary.recipe;
  result["bits_per_weight"] = summary.bits_per_weight;
  nb::list tensors;
  for (const TensorSummary& t : summary.tensors)
    tensors.append(tensor_dict(t));
  result["tensors"] = tensors;
  return result;
}

nb::tuple quantize_folder(const nb::bytes& in, const nb::bytes& out, const CompressOptions& options,
                          int threads, const nb::object& progress) {
  CompressReport report;
  Progress told(progress);
  const auto tell = [&](size_t done, size_t count) {
    told.set(done, count);
    return true;
  };
  const std::string from = path_of(in), to = path_of(out);
  const CompressOptions copy = options;  // Python may change its own meanwhile
  const auto work = [&] { report = quantize(from, to, copy, threads, tell); };
  run_interruptible([&] { reading_files(from, work); }, told);
  return nb::make_tuple(report.file_bytes, report.bits_per_weight, report.notes);
}

nb::list format_list() {
  nb::list result;
  for (const FormatSummary& f : formats())
    result.append(nb::make_tuple(f.name, f.bits_per_weight, f.bound, f.note));
  return result;
}

// Returns the XXH3-128 of bytes, as 32 hex digits.
std::string checksum_of(
    const nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>& bytes) {
  return checksum({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}).hex();
}

}  // namespace

void bind_quantizer(nb::module_& module) {
  bind_options(module);
  module.def("quantize", &quantize_folder, nb::arg(), nb::arg(), nb::arg(), nb::arg(),
             nb::arg("progress").none());
  module.def("inspect", &inspect_file);
  module.def("formats", &format_list);
  module.def("checksum", &checksum_of);
}

}  // namespace walsh::python
