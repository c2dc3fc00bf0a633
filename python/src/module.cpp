// Defines the extension module walsh._walsh: the public C++ classes as the package's Python code
// uses them.
#include "module.h"

#include "calls.h"
#include "walsh/version.h"

NB_MODULE(_walsh, module) {
  using namespace walsh::python;
  module.attr("__version__") = walsh::kVersion;
  register_errors(module);
  nanobind::module_::import_("atexit").attr("register")(nanobind::cpp_function(&end_calls));
  bind_quantizer(module);
  bind_engine(module);
  bind_operators(module);
  bind_device_operators(module);
  bind_placed_layers(module);
}
