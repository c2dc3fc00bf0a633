#include "model/cuda/launches.h"

#include <algorithm>
#include <utility>

#include "kernels/cuda/rows/latent_rows.h"
#include "kernels/cuda/rows/query_source.h"

namespace walsh {
namespace {

// Up to this many rows, the launch that also prepares inputs chooses the experts. Its last block
// does so for all rows, so more rows get a faster launch of their own.
constexpr int64_t kMostRoutedInFront = 8;
// From this many rows of a sequence on, latents are expanded to keys and values of heads. Expanding
// a position costs about as much as 24 rows that read its latent, by an estimate
// (docs/gpu_notebook.md).
constexpr int64_t kLeastExpandedRows = 32;

}  // namespace

CudaLaunches::CudaLaunches(const CudaOperands& operands, CudaMemory& memory, const CudaBatch& batch,
                           cuda::Stream stream)
    : operands_(operands),
      model_(operands.model()),
      memory_(memory),
      batch_(batch),
      stream_(stream) {}

void CudaLaunches::run(int64_t begin, int64_t end) {
  for (int64_t layer = begin; layer < end; ++layer)
    run_layer(model_.steps.layers[static_cast<size_t>(layer)]);
}

void CudaLaunches::run_layer(const LayerSteps& layer) {
  steps_ = layer.steps;
  for (at_ = 0; at_ < steps_.size(); ++at_) {
    const Step& step = steps_[at_];
    layer_ = step.layer;
    skip_ = step.only_wanted ? batch_.first_wanted() : 0;
    if (skip_ < batch_.rows() || step.changes_state)
      std::visit([this](const auto& s) { perform(s); }, step.op);
  }
}

void CudaLaunches::embed() {
  steps_ = model_.steps.embed;
  skip_ = 0;
  for (at_ = 0; at_ < steps_.size(); ++at_) {
    layer_ = steps_[at_].layer;
    std::visit([this](const auto& s) { perform(s); }, steps_[at_].op);
  }
}

void CudaLaunches::perform(const step::Embed& s) {
  cuda::embed(operands_.table(s.of_layers), operands_.staged(0), batch_.rows(), operands_.row(s.to),
              s.to.stride, s.scale, stream_);
}

void CudaLaunches::perform(const step::Product& s) {
  CudaSource source{operands_.source(s, layer_, skip_), {}};
  if (s.up.present() && s.up.stride != s.from.stride) {  // `up` gets the layout of the gates.
    float* const packed = operands_.row({Rows::up, s.up.width});
    cuda::copy_rows(source.rows.up, s.up.stride, rows(), s.up.width, packed, stream_);
    source.rows.up = packed;
  }
  if (s.from.rows == Rows::mixed) source.gates = std::exchange(gates_, {});
  if (meter_ != nullptr) meter_->add(model_.input(layer_, s.input), source, rows(), stream_);
  const std::vector<CudaMatmul> items = operands_.products(s, layer_, skip_);
  const auto* route = following<step::Route>(1);
  const auto* experts = following<step::Experts>(2);
  prepared_in_front_ = route != nullptr && experts != nullptr && !experts->makes_input &&
                       CudaLinear::is_in_front(*items.front().linear, rows());
  routed_in_front_ = prepared_in_front_ && route->factors < 0 && rows() <= kMostRoutedInFront;
  CudaFront front;
  if (prepared_in_front_) {
    front = memory_.experts.front(operands_.experts(*experts, layer_), operands_.row(route->logits),
                                  operands_.vector(layer_, route->bias), rows());
    if (!routed_in_front_) front.route = nullptr;
  }
  memory_.linear.multiply(model_.input(layer_, s.input), source, items, rows(), stream_,
                          prepared_in_front_ ? &front : nullptr);
}

// Turns queries, and stores latents and shared keys in the cache.
void CudaLaunches::keep_latents(const step::PrepareHeads& s) {
  const cuda::RopeCall rope = operands_.rope_call(s, layer_, batch_.rows());
  const Norm& norm = model_.input(layer_, s.latent_input).norm;
  if (meter_ != nullptr) {
    const CudaSource latents{operands_.source(s.latent, norm, layer_, 0), {}};
    meter_->add(model_.input(layer_, s.latent_input), latents, batch_.rows(), stream_);
  }
  cuda::LatentRows call;
  call.q = rope.q;
  call.ldq = rope.ldq;
  call.heads = rope.heads;
  call.head_dim = static_cast<int>(s.shape.dim);
  call.latent = operands_.row(s.latent);
  call.ld_latent = s.latent.stride;
  call.gain = operands_.vector(layer_, norm.gain);
  call.eps = norm.eps;
  call.shared_key = operands_.row(s.shared_key);
  call.ld_shared = s.shared_key.stride;
  call.cos = rope.cos;
  call.sin = rope.sin;
  call.pairs = rope.rotated / 2;
  call.q_scale = rope.q_scale;
  call.m = rope.m;
  cuda::keep_latents(call, memory_.cache.pools[static_cast<size_t>(s.cache)], memory_.cache.table,
                     operands_.places(), stream_);
}

// Multiplies the rows from skip_ on, except those whose latents are expanded: attend_expanded()
// multiplies them.
void CudaLaunches::perform(const step::MultiplyHeads& s) {
  for (const RowGroup& group : batch_.groups()) {
    const int64_t first = std::max(group.first, skip_);
    if (first < group.end() && !is_expanded(group)) multiply_heads(s, first, group.end() - first);
  }
}

void CudaLaunches::multiply_heads(const step::MultiplyHeads& s, int64_t first, int64_t count) {
  const Linear& linear = model_.matrix(layer_, s.matrix);
  cuda::HeadProducts call;
  call.type = linear.format->dtype;
  call.w = cuda_weights(linear).dense.data.as();
  call.heads = static_cast<int>(s.heads);
  call.rows = static_cast<int>(s.rows);
  call.cols = static_cast<int>(s.cols);
  call.kept = static_cast<int>(s.kept);
  call.x = operands_.row(s.from, first);
  call.ldx = s.from.stride;
  call.y = operands_.row(s.to, first);
  call.ldy = s.to.stride;
  call.m = count;
  cuda::multiply_heads(call, stream_);
}

// Normalizes each norm.width values of all rows, which lie one after the other.
void CudaLaunches::norm_all(const Norm& norm, float* x, int64_t width) {
  cuda::norm_rows(x, batch_.rows() * (width / norm.width), norm.width,
                  operands_.vector(layer_, norm.gain), norm.eps, stream_);
}

// With an fp16 cache and no norm in front, rope reads queries where the product has put them,
// beside their gates. Otherwise they are copied first.
void CudaLaunches::perform(const step::PrepareHeads& s) {
  if (s.latent.present()) return keep_latents(s);
  const int64_t m = batch_.rows();
  const bool coded = memory_.cache.coded != nullptr;
  const bool has_norm = CudaOperands::has_norm_in_front(s);
  const bool gated = s.gates.present(), in_place = !coded && !has_norm;
  if (gated && !in_place) {
    cuda::take_queries(operands_.row(s.query), m, static_cast<int>(s.shape.heads),
                       static_cast<int>(s.shape.dim), operands_.row(s.to), stream_);
  }
  if (has_norm) {
    norm_all(s.query_norm, operands_.row(s.to), s.to.width);
    if (s.key.present()) norm_all(s.key_norm, operands_.row(s.key), s.key.width);
  }
  const cuda::RopeCall call = operands_.rope_call(s, layer_, m);
  if (coded) return memory_.cache.coded->keep(s.cache, call, operands_.places(), stream_);
  cuda::QuerySource from{operands_.row(s.to), s.to.stride, s.shape.dim};
  if (gated && in_place) from = {operands_.row(s.query), s.query.stride, 2 * s.shape.dim};
  cuda::rope_and_store(call, from, memory_.cache.pools[static_cast<size_t>(s.cache)],
                       memory_.cache.table, operands_.places(), stream_);
}

void CudaLaunches::perform(const step::Attend& s) {
  if (memory_.cache.coded) {
    memory_.cache.coded->attend(s.cache, operands_.attention_rows(s, layer_, batch_.rows()), skip_,
                                memory_.attention_scratch, stream_);
  } else if (s.value_dim < s.shape.dim) {
    attend_latents(s);
  } else {
    attend_pages(s);
  }
}

void CudaLaunches::attend_pages(const step::Attend& s) {
  const auto call = [&](int64_t begin, int64_t end) {
    return operands_.attention_call(s, layer_, begin, end - begin);
  };
  for (const RowGroup& group : batch_.groups()) {
    const int64_t begin = std::max(group.first, skip_), end = group.end();
    if (!group.single && begin < end) cuda::attend_prefill(call(begin, end), stream_);
    for (int64_t row = begin; group.single && row < end; row += cuda::kDecodeRows) {
      cuda::attend_decode(call(row, std::min(end, row + cuda::kDecodeRows)), group.longest,
                          memory_.attention_scratch, stream_);
    }
  }
}

// Returns whether the latents of a group's sequence are expanded to keys and values of heads. The
// answer depends only on the number of rows, so all steps of a layer agree.
bool CudaLaunches::is_expanded(const RowGroup& group) const {
  return memory_.latent_heads.present() && !group.single && group.rows >= kLeastExpandedRows;
}

void CudaLaunches::attend_latents(const step::Attend& s) {
  for (const RowGroup& group : batch_.groups()) {
    const int64_t begin = std::max(group.first, skip_), end = group.end();
    if (is_expanded(group)) {
      if (begin < end) attend_expanded(s, begin, end, group.longest);
      continue;
    }
    for (int64_t row = begin; row < end; row += cuda::kDecodeRows) {
      const int64_t count = std::min(end - row, cuda::kDecodeRows);
      cuda::attend_latents(operands_.attention_call(s, layer_, row, count), group.longest,
                           memory_.attention_scratch, stream_);
    }
  }
}

// Computes the rows [begin, end) of the batch, which end at position `longest` of their sequence.
// This replaces attention and the products of heads before it and after it, so it reads the
// queries of the first product, uses both matrices, and writes the results of the last one.
void CudaLaunches::attend_expanded(const step::Attend& s, int64_t begin, int64_t end,
                                   int64_t longest) {
  const auto &before = std::get<step::MultiplyHeads>(steps_[at_ - 1].op),
             &behind = std::get<step::MultiplyHeads>(steps_[at_ + 1].op);
  const Linear &keys = model_.matrix(layer_, before.matrix),
               &values = model_.matrix(layer_, behind.matrix);
  step::Attend of_heads = s;
  of_heads.query = before.from;
  of_heads.to = behind.to;
  cuda::LatentPrompt call;
  static_cast<cuda::AttentionCall&>(call) =
      operands_.attention_call(of_heads, layer_, begin, end - begin);
  call.key_dim = static_cast<int>(before.kept + before.cols);
  call.value_dim = static_cast<int>(behind.rows);
  call.key_type = keys.format->dtype;
  call.key_parts = cuda_weights(keys).dense.data.as();
  call.value_type = values.format->dtype;
  call.value_parts = cuda_weights(values).dense.data.as();
  call.end = longest;
  cuda::attend_latent_prompt(call, memory_.latent_heads, stream_);
}

void CudaLaunches::perform(const step::Convolve& s) {
  if (s.gated()) {
    return memory_.delta_net.convolve_gated(layer_,
                                            operands_.gated_convolve_call(s, layer_, batch_.rows()),
                                            batch_.runs(), batch_.marks(), stream_);
  }
  convolved_ = &s;
  memory_.delta_net.convolve(layer_, operands_.delta_rows(s, {}, batch_.rows()), batch_.runs(),
                             batch_.marks(), stream_);
}

// Computes all rows, although only results from skip_ on are wanted, because the state has to
// advance.
void CudaLaunches::perform(const step::DeltaRule& s) {
  memory_.delta_net.apply_rule(layer_, operands_.delta_rows(*convolved_, s.to, batch_.rows()),
                               batch_.runs(), batch_.groups(), batch_.marks(), skip_, stream_);
}

// If the next product can apply the gates while it prepares its input, the gates are only kept for
// it.
void CudaLaunches::perform(const step::GateHeads& s) {
  const cuda::HeadGates gates = operands_.head_gates(s, layer_, skip_);
  gates_ = {};
  if (cuda::can_prepare(gates)) {
    gates_ = gates;
  } else {
    cuda::gate_heads(operands_.row(s.x, skip_), gates, rows(), static_cast<int>(s.heads), stream_);
  }
}

void CudaLaunches::perform(const step::Route& s) {
  const auto* experts = following<step::Experts>(1);
  if (routed_in_front_ || experts == nullptr) return;
  memory_.experts.route(operands_.experts(*experts, layer_), operands_.row(s.logits),
                        operands_.vector(layer_, s.bias), rows(), stream_);
  if (s.factors >= 0)
    memory_.experts.scale_weights(s.experts, operands_.vector(layer_, s.factors), rows(), stream_);
}

// The products of down wait until AddExperts, because a shared expert is multiplied in between.
void CudaLaunches::perform(const step::Experts& s) {
  experts_ = &s;
  memory_.experts.begin(operands_.experts(s, layer_),
                        operands_.source(s.from, s.norm, layer_, skip_), prepared_in_front_, rows(),
                        stream_, meter_);
}

void CudaLaunches::perform(const step::AddExperts& s) {
  cuda::ExpertSum call;
  if (s.share.present()) call.share = operands_.row(s.share);
  call.out = operands_.row(s.branch);
  call.shared = s.shared;
  if (s.to.present()) {
    call.stream = operands_.row(s.to, skip_);
    call.scale = s.scale;
  }
  call.m = rows();
  memory_.experts.finish(operands_.experts(*experts_, layer_), call, stream_, meter_);
}

void CudaLaunches::perform(const step::CenterRows& s) {
  const int64_t first = s.x.keeps_places() ? skip_ : 0;
  cuda::center_rows(operands_.row(s.x, first), rows(), s.x.width, stream_);
}

void CudaLaunches::perform(const step::NormRows& s) {
  cuda::norm_rows(operands_.row(s.x), rows() * (s.x.width / s.norm.width), s.norm.width,
                  operands_.vector(layer_, s.norm.gain), s.norm.eps, stream_);
}

// Where a norm covers only a part of a row, each part counts as a row; the rows are contiguous.
void CudaLaunches::perform(const step::AddBranch& s) {
  cuda::BranchCall call;
  call.branch = operands_.row(s.branch);
  call.gain = operands_.vector(layer_, s.norm.gain);
  call.eps = s.norm.eps;
  call.scale = s.scale;
  call.factor = operands_.vector(layer_, s.factor);
  call.x = operands_.row(s.to, s.to.keeps_places() ? skip_ : 0);
  call.width = s.norm.present() ? s.norm.width : s.to.width;
  call.m = rows() * (s.to.width / call.width);
  cuda::add_branch(call, stream_);
}

// Returns the wanted rows of the stream, contiguous. Unless they are that already, they are copied
// to the first rows of `gate`, which nothing reads any more.
const float* CudaLaunches::wanted_rows(const Operand& from, int64_t first, int64_t count) {
  const int32_t begin = batch_.wanted()[static_cast<size_t>(first)];
  if (batch_.wanted()[static_cast<size_t>(first + count - 1)] == begin + count - 1)
    return operands_.row(from, begin);
  float* gathered = operands_.row({Rows::gate, from.width});
  cuda::gather_rows(operands_.row(from), from.width, operands_.staged(3) + first, count, gathered,
                    stream_);
  return gathered;
}

void CudaLaunches::logits(int64_t first, int64_t count) {
  first_logit_ = first;
  logit_count_ = count;
  layer_ = -1;
  std::visit([this](const auto& s) { perform(s); }, model_.steps.head.steps.front().op);
}

void CudaLaunches::perform(const step::Logits& s) {
  CudaSource source{operands_.source(s.from, s.norm, -1, 0), {}};
  source.rows.x = wanted_rows(s.from, first_logit_, logit_count_);
  const CudaMatmul head{&model_.head, operands_.row(s.to), s.to.stride, false};
  memory_.linear.multiply(model_.input(-1, 0), source, {&head, 1}, logit_count_, stream_);
  cap(logit_count_);
}

void CudaLaunches::cap(int64_t count) {
  const auto& s = std::get<step::Logits>(model_.steps.head.steps.front().op);
  if (s.scale == 1 && s.cap == 0) return;
  cuda::cap_logits(operands_.row(s.to), count, s.to.width, s.scale, s.cap, stream_);
}

}  // namespace walsh
