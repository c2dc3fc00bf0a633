#include "model/cuda/operands.h"

#include "codec/codec.h"

#include <algorithm>

namespace walsh {
namespace {

cuda::StoredTable stored_table(const CudaEmbedding& embedding) {
  cuda::StoredTable table;
  table.format = embedding.format;
  table.rows = embedding.rows;
  table.cols = embedding.cols;
  if (embedding.format->dense) {
    table.data = embedding.arrays[0].as();
    return table;
  }
  size_t next = 0;
  for (int pass = 0; pass < embedding.format->passes; ++pass) {
    cuda::StoredTable::Pass& to = table.pass[pass];
    to.rotation = embedding.rotation[pass];
    const auto place = [&](PassArray array) -> const void*& {
      if (array == &PassArrays::codes) return to.codes;
      if (array == &PassArrays::scales) return to.scales;
      if (array == &PassArrays::offsets) return to.offsets;
      if (array == &PassArrays::sub_scales) return to.sub_scales;
      return to.col_scales;
    };
    for (const PassField& field :
         pass_fields(*embedding.format, pass, embedding.rows, embedding.cols)) {
      if (field.array != &PassArrays::codebook) place(field.array) = embedding.arrays[next++].as();
    }
    if (codec_of(*embedding.format).codebook) to.codebook = embedding.arrays[next++].as();
  }
  return table;
}

}  // namespace

CudaOperands::CudaOperands(const Model& model, const CudaMemory& memory)
    : model_(model), memory_(memory), expert_strides_(model.layers.size()) {
  for (const LayerSteps& layer : model.steps.layers) {
    for (const Step& step : layer.steps) {
      if (const auto* s = std::get_if<step::Experts>(&step.op)) {
        expert_strides_[static_cast<size_t>(step.layer)] =
            expert_stride(model, step.layer, s->experts);
      }
    }
  }
  const auto table_of = [](const TokenTable& table) {
    return stored_table(static_cast<const CudaEmbedding&>(*table.device_weights));
  };
  if (model.has_embedding()) embedding_ = table_of(model.embedding);
  if (model.layer_embedding.present()) layer_embedding_ = table_of(model.layer_embedding);
}

float* CudaOperands::row(const Operand& operand, int64_t index) const {
  return memory_.rows[static_cast<size_t>(operand.rows)].as<float>() + index * operand.stride +
         operand.first;
}

int32_t* CudaOperands::staged(int64_t array) const {
  return memory_.staged.as<int32_t>() + array * memory_.max_rows;
}

cuda::InputSource CudaOperands::source(const Operand& from, const Norm& norm, int layer,
                                       int64_t first) const {
  cuda::InputSource source;
  source.x = row(from, first);
  source.width = from.width;
  source.ldx = from.stride;
  source.gain = vector(layer, norm.gain);
  source.eps = norm.eps;
  return source;
}

cuda::InputSource CudaOperands::source(const step::Product& s, int layer, int64_t skip) const {
  if (!s.up.present()) return source(s.from, s.norm, layer, skip);
  cuda::InputSource product = source(s.from, s.norm, layer, 0);
  product.up = row(s.up, s.up.keeps_places() ? skip : 0);
  product.function = s.gate.function;
  return product;
}

std::vector<CudaMatmul> CudaOperands::products(const step::Product& s, int layer,
                                               int64_t skip) const {
  std::vector<CudaMatmul> items;
  for (const step::Product::Output& output : s.outputs) {
    const int64_t first = output.to.rows == Rows::stream ? skip : 0;
    items.push_back(
        {&model_.matrix(layer, output.matrix), row(output.to, first), output.to.stride, s.add});
  }
  return items;
}

float CudaOperands::magnitude(int rope) const {
  return rope < 0 ? 1 : memory_.ropes[static_cast<size_t>(rope)].magnitude;
}

cuda::RopeCall CudaOperands::rope_call(const step::PrepareHeads& s, int layer, int64_t m) const {
  cuda::RopeCall call;
  call.q = row(s.to);
  call.ldq = s.to.stride;
  if (s.key.present() && !s.latent.present()) {
    const Operand& value = s.values_are_keys ? s.key : s.value;
    call.k = row(s.key);
    call.ldk = s.key.stride;
    call.v = row(value);
    call.ldv = value.stride;
    call.v_norm = vector(layer, s.value_norm().gain);
    call.v_eps = s.value_norm().eps;
  }
  call.m = m;
  call.heads = static_cast<int>(s.shape.heads);
  if (const Norm unit = s.unit(); unit.present()) {
    const float longer = magnitude(s.rope);
    call.q_norm = call.k_norm = vector(layer, unit.gain);
    call.eps = unit.eps / (longer * longer);
  } else if (!has_norm_in_front(s)) {
    call.q_norm = vector(layer, s.query_norm.gain);
    call.k_norm = vector(layer, s.key_norm.gain);
    call.eps = s.query_norm.eps;
    call.norms_turned = s.options.norms_turned;
  }
  if (s.factors >= 0)
    call.q_scale = memory_.query_factors[static_cast<size_t>(s.factors)].as<float>();
  if (s.rope < 0) return call;
  const CudaMemory::Rope& rope = memory_.ropes[static_cast<size_t>(s.rope)];
  call.rotated = 2 * rope.pairs;
  call.cos = rope.cos.as<float>();
  call.sin = rope.sin.as<float>();
  return call;
}

cuda::AttentionRows CudaOperands::attention_rows(const step::Attend& s, int layer,
                                                 int64_t m) const {
  cuda::AttentionRows call;
  call.heads = static_cast<int>(s.shape.heads);
  call.options = s.options;
  call.q = row(s.query);
  call.ldq = s.query.stride;
  call.out = row(s.to);
  call.ldo = s.to.stride;
  call.rows = places();
  call.m = m;
  call.sinks = vector(layer, s.sinks);
  return call;
}

cuda::AttentionCall CudaOperands::attention_call(const step::Attend& s, int layer, int64_t first,
                                                 int64_t rows) const {
  return {attention_rows(s, layer, first + rows).part(first, first + rows),
          &memory_.cache.pools[static_cast<size_t>(s.cache)], memory_.cache.table};
}

cuda::HeadGates CudaOperands::head_gates(const step::GateHeads& s, int layer, int64_t skip) const {
  cuda::HeadGates gates;
  gates.dim = static_cast<int>(s.dim);
  if (s.norm.present()) {
    gates.ld = s.gate.stride;
    gates.head_ld = s.dim;
    gates.gate = row(s.gate, skip);
    gates.gain = vector(layer, s.norm.gain);
    gates.eps = s.norm.eps;
    gates.first = s.gate_first;
  } else {
    const Operand queries{Rows::query, 2 * s.gate.width};
    gates.ld = queries.stride;
    gates.head_ld = 2 * s.dim;
    gates.gate = row(queries, skip) + s.dim;
  }
  return gates;
}

CudaDeltaNet::Rows CudaOperands::delta_rows(const step::Convolve& s, const Operand& mixed,
                                            int64_t m) const {
  CudaDeltaNet::Rows rows;
  rows.channels = row(s.channels);
  rows.decay = row(s.decay);
  rows.strength = row(s.strength);
  rows.mixed = row(mixed);
  rows.places = places();
  rows.m = m;
  return rows;
}

cuda::GatedConvolveCall CudaOperands::gated_convolve_call(const step::Convolve& s, int layer,
                                                          int64_t m) const {
  cuda::GatedConvolveCall call;
  call.places = places();
  call.in = row(s.channels);
  call.before = row(s.before);
  call.after = row(s.after);
  call.out = row(s.to);
  call.weights = vector(layer, s.taps);
  call.bias = vector(layer, s.channel_bias);
  call.m = m;
  return call;
}

}  // namespace walsh
