// Reads the request fields for sampling, which all endpoints share. They are the rows of
// generate/sampling_options.h.
#pragma once

#include <string>

#include "io/json.h"
#include "kernels/sampler_options.h"
#include "serve/fields.h"
#include "text/tokenizer.h"
#include "walsh/engine.h"

namespace walsh {

// Returns the options of the request, completed by `options`. Throws ApiError 400 for a value of
// another type or out of range; ids in logit_bias must be below `vocab`, and texts in it stand for
// their tokens.
GenerationOptions read_sampling(const Fields& fields, GenerationOptions options, int64_t vocab,
                                const Tokenizer& tokenizer);

// Copies the sampling fields of one request to another.
void copy_sampling(const OrderedJson& from, OrderedJson& to);

// Returns JSON schemas of the fields, by name.
Json sampling_properties();

// Returns the numbers among the fields as the page asks for them. The text is a script's list of
// lists, each with the name, the least and the greatest value, the step and the help.
std::string sampling_inputs();

// Returns the decided values by field name, for /props.
Json sampling_values(const SamplerOptions& options);

}  // namespace walsh
