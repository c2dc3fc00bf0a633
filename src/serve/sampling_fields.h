// The fields of requests that say how tokens are chosen, of all endpoints: the rows of
// generate/sampling_options.h.
#pragma once

#include "io/json.h"
#include "kernels/sampler_options.h"
#include "serve/fields.h"
#include "walsh/engine.h"

namespace walsh {

// What the request says, and for what it leaves open `options`. Throws ApiError 400 for a value of
// another type or out of range; ids of logit_bias are below `vocab`.
GenerationOptions read_sampling(const Fields& fields, GenerationOptions options, int64_t vocab);

// Copies what one request says to another one.
void copy_sampling(const OrderedJson& from, OrderedJson& to);

// Schemas of the fields, by their names.
Json sampling_properties();

// What is decided, by the names of the fields, for /props.
Json sampling_values(const SamplerOptions& options);

}  // namespace walsh
