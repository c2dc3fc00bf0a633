// What the GPU's executor does between the matrices of attention.
#include <algorithm>

#include "kernels/cuda/rows/query_source.h"
#include "model/cuda/executor.h"

namespace walsh {

// Queries as attention reads them: where they have gates, without them.
float* CudaExecutor::queries(const ForwardOp& op) const {
  return attention_of(op).gated ? memory_->queries.as<float>() : row(Rows::query, 0, 0);
}

// Keys and values of a latent get their heads.
void CudaExecutor::spread_latent(const AttentionDesc& a) {
  cuda::LatentHeads call;
  call.key = row(Rows::key, 0, 0);
  call.value = row(Rows::value, 0, 0);
  call.shared_key = row(Rows::shared_key, 0, 0);
  call.ld = a.kv_width();
  call.m = m_;
  call.heads = static_cast<int>(a.heads);
  call.head_dim = static_cast<int>(a.head_dim);
  call.rope_dim = static_cast<int>(a.latent.rope_dim);
  call.value_dim = static_cast<int>(a.latent.value_dim);
  cuda::spread_heads(call, stream_.get());
}

// Of what attention to a latent gives, the values that o reads.
void CudaExecutor::close_values(const AttentionDesc& a, int64_t skip) {
  if (a.latent.value_dim == a.head_dim) return;
  cuda::close_values(row(Rows::mixed, skip, a.query_width()), a.query_width(), m_ - skip,
                     static_cast<int>(a.heads), static_cast<int>(a.head_dim),
                     static_cast<int>(a.latent.value_dim), stream_.get());
}

cuda::RopeCall CudaExecutor::rope_call(const ForwardOp& op) const {
  const AttentionDesc& a = attention_of(op);
  const CudaMemory::Gains& gains = memory_->gains[static_cast<size_t>(op.layer)];
  cuda::RopeCall call;
  call.q = queries(op);
  call.ldq = a.query_width();
  call.k = row(Rows::key, 0, 0);
  call.ldk = a.kv_width();
  call.v = row(Rows::value, 0, 0);
  call.ldv = a.kv_width();
  call.m = m_;
  call.heads = static_cast<int>(a.heads);
  if (!a.norms_all_heads()) {
    call.q_norm = floats(gains.q_norm);
    call.k_norm = floats(gains.k_norm);
  }
  call.eps = a.unit_eps != 0 ? a.unit_eps : a.q_norm.eps;
  if (a.growth != 0) call.q_scale = memory_->growth.as<float>();
  if (a.rope < 0) return call;
  const CudaMemory::Rope& rope = memory_->ropes[static_cast<size_t>(a.rope)];
  call.rotated = 2 * rope.pairs;
  call.cos = rope.cos.as<float>();
  call.sin = rope.sin.as<float>();
  if (!rope.query.empty()) call.q_scale = rope.query.as<float>();
  return call;
}

void CudaExecutor::place_heads(const ForwardOp& op) {
  const AttentionDesc& a = attention_of(op);
  const bool in_place = !memory_->cache.coded && !a.norms_all_heads();  // of queries beside gates
  if (a.gated && !in_place) {
    cuda::take_queries(row(Rows::query, 0, 0), m_, static_cast<int>(a.heads),
                       static_cast<int>(a.head_dim), queries(op), stream_.get());
  }
  if (a.norms_all_heads()) {
    const CudaMemory::Gains& gains = memory_->gains[static_cast<size_t>(op.layer)];
    cuda::norm_rows(queries(op), m_, a.query_width(), floats(gains.q_norm), a.q_norm.eps,
                    stream_.get());
    cuda::norm_rows(row(Rows::key, 0, 0), m_, a.kv_width(), floats(gains.k_norm), a.k_norm.eps,
                    stream_.get());
  }
  if (a.latent.present()) spread_latent(a);
  if (memory_->cache.coded) {
    memory_->cache.coded->keep(op.layer, rope_call(op), places(), stream_.get());
  } else {
    cuda::QuerySource from{queries(op), a.query_width(), a.head_dim};
    if (a.gated && in_place) from = {row(Rows::query, 0, 0), a.query_rows(), 2 * a.head_dim};
    cuda::rope_and_store(rope_call(op), from, memory_->cache.pools[static_cast<size_t>(op.layer)],
                         memory_->cache.table, places(), stream_.get());
  }
}

// Of one row, whose queries stand where their product writes them.
bool CudaExecutor::collect_attention(const ForwardOp& op, cuda::PersistentProgram& program) const {
  cuda::RopeCall rope = rope_call(op);
  rope.q = row(Rows::query, 0, 0);
  return program.attend(rope, attention_call(op, 0, 1), memory_->attention_scratch,
                        attention_of(op).gated);
}

// Of all rows of the batch.
cuda::AttentionRows CudaExecutor::attention_rows(const ForwardOp& op) const {
  const AttentionDesc& a = attention_of(op);
  cuda::AttentionRows call;
  call.heads = static_cast<int>(a.heads);
  call.window = a.reach();
  call.scale = a.scale;
  call.logit_cap = a.logit_cap;
  call.ldq = call.ldo = a.query_width();
  call.rows = places();
  call.m = m_;
  call.q = queries(op);
  call.out = row(Rows::mixed, 0, 0);
  call.sinks = floats(gains_of(op).sinks);
  return call;
}

cuda::AttentionCall CudaExecutor::attention_call(const ForwardOp& op, int64_t first,
                                                 int64_t rows) const {
  return {attention_rows(op).part(first, first + rows),
          &memory_->cache.pools[static_cast<size_t>(op.layer)], memory_->cache.table};
}

void CudaExecutor::attend(const ForwardOp& op, int64_t skip) {
  if (memory_->cache.coded) {
    memory_->cache.coded->attend(op.layer, attention_rows(op), skip, memory_->attention_scratch,
                                 stream_.get());
  } else {
    attend_pages(op, skip);
  }
  if (attention_of(op).latent.present()) close_values(attention_of(op), skip);
}

void CudaExecutor::attend_pages(const ForwardOp& op, int64_t skip) {
  for (const RowGroup& group : groups_) {
    const int64_t begin = std::max(group.first, skip), end = group.end();
    if (!group.single && begin < end)
      cuda::attend_prefill(attention_call(op, begin, end - begin), stream_.get());
    for (int64_t row = begin; group.single && row < end; row += cuda::kMaxVectors) {
      cuda::attend_decode(attention_call(op, row, std::min(end - row, cuda::kMaxVectors)),
                          group.longest, memory_->attention_scratch, stream_.get());
    }
  }
}

}  // namespace walsh
