// Loads small random models for tests of the scheduler.
#pragma once

#include "arch/config.h"
#include "model/synthetic.h"

namespace walsh::test {

// Returns a model whose layers have `type`, with this type of cache for keys and values. The pool
// outlives it.
inline Model synthetic_model(ThreadPool& pool, const char* cache = "f16", const char* type = "tq4",
                             const char* shape = "tiny") {
  SyntheticSource source(shape, {&get_format(type), &get_format("f16"), &get_format("f16")});
  LoadOptions options;
  options.pool = &pool;
  options.cache = {&get_cache_type(cache), &get_cache_type(cache), 32};
  return Model::load(source, parse_config(source.config_json(), source.path()), options);
}

}  // namespace walsh::test
