#include "vision/tower.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "walsh/error.h"

namespace walsh::vision {
namespace {

// Says between which two entries of a table a position lies when the table is stretched so that its
// ends meet the ends of the image.
struct Place {
  int64_t first, second;
  float share;  // the second one has this share
};

Place place_of(int64_t position, int64_t count, int64_t side) {
  if (count == 1) return {0, 0, 0};
  const float exact =
      static_cast<float>(position) * static_cast<float>(side - 1) / static_cast<float>(count - 1);
  const auto first = std::min(static_cast<int64_t>(exact), side - 1);
  return {first, std::min(first + 1, side - 1), exact - static_cast<float>(first)};
}

void add_rows(const Rows& from, Rows& to, ThreadPool& pool) {
  pool.for_ranges(static_cast<int64_t>(to.values.size()), 1024, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      to.values.data()[i] += from.values.data()[i];
  });
}

Rows copy_of(const Rows& x) {
  Rows copy(x.rows, x.columns, x.width);
  std::copy_n(x.row(0), x.count() * x.width, copy.row(0));
  return copy;
}

// Appends to each row the values of the row of `more` at the same place.
void append(const Rows& more, Rows& x) {
  Rows joined(x.rows, x.columns, x.width + more.width);
  for (int64_t i = 0; i < x.count(); ++i)
    std::copy_n(more.row(i), more.width, std::copy_n(x.row(i), x.width, joined.row(i)));
  x = std::move(joined);
}

}  // namespace

Tower::Tower(const TowerDesc& desc, std::shared_ptr<const Checkpoint> checkpoint) : desc_(desc) {
  const TowerTensors tensors(std::move(checkpoint), desc.prefixes);
  patches_ = read_patches(tensors);
  if (desc.table_side > 0) {
    table_ = tensors.values(desc.position_name + ".weight",
                            {desc.table_side * desc.table_side, desc.width});
  }
  read_steps(tensors, desc.before, desc.width, before_);
  for (int64_t i = 0; i < desc.layers; ++i)
    layers_.push_back(read_layer(tensors, i));
  read_steps(tensors, desc.after, desc.width, after_);
  for (const TowerBranch& branch : desc.branches)
    read_steps(tensors, branch.steps, desc.width, branches_.emplace_back());
}

int64_t Tower::patches_per_row() const {
  int64_t count = 1;
  for (const RowStep& step : desc_.after)
    count *= step.side * step.side;
  return count;
}

Tower::Norm Tower::read_norm(const TowerTensors& tensors, const std::string& name, bool rms,
                             int64_t width, float eps) const {
  Norm norm{tensors.vector(name + ".weight", width), {}, eps};
  if (!rms) norm.bias = tensors.vector(name + ".bias", width);
  return norm;
}

// Reads the matrix of patches. The frames of an image are equal, so they are multiplied with the
// sum of their matrices.
TowerMatrix Tower::read_patches(const TowerTensors& tensors) const {
  const int64_t area = desc_.patch * desc_.patch, cols = 3 * area;
  std::vector<int64_t> shape = {desc_.width, 3, desc_.patch, desc_.patch};
  if (desc_.frames > 0) shape.insert(shape.begin() + 2, desc_.frames);
  const std::vector<float> stored = tensors.values(desc_.patch_name + ".weight", shape);
  std::vector<float> sums(static_cast<size_t>(desc_.width * cols));
  for (size_t i = 0; i < stored.size(); ++i) {
    const auto place = static_cast<int64_t>(i);
    const int64_t plane = place / area / std::max<int64_t>(desc_.frames, 1);
    sums[static_cast<size_t>(plane * area + place % area)] += stored[i];
  }
  TowerMatrix matrix = float_matrix(std::move(sums), desc_.width, cols);
  if (desc_.bias) matrix.bias = tensors.vector(desc_.patch_name + ".bias", desc_.width);
  return matrix;
}

Tower::Layer Tower::read_layer(const TowerTensors& tensors, int64_t index) const {
  const TowerDesc& d = desc_;
  const LayerNames& names = d.names;
  const std::string stem = names.layers + std::to_string(index) + ".";
  const auto matrix = [&](const std::string& name, int64_t rows, int64_t cols) {
    return tensors.matrix(stem + name, rows, cols, d.bias);
  };
  Layer layer;
  layer.norm1 = read_norm(tensors, stem + names.norm1, d.rms, d.width, d.eps);
  layer.norm2 = read_norm(tensors, stem + names.norm2, d.rms, d.width, d.eps);
  if (!names.qkv.empty()) {
    layer.qkv.push_back(matrix(names.qkv, 3 * d.width, d.width));
  } else {
    for (const std::string* name : {&names.q, &names.k, &names.v})
      layer.qkv.push_back(matrix(*name, d.width, d.width));
  }
  layer.out = matrix(names.out, d.width, d.width);
  if (!names.gate.empty()) layer.gate = matrix(names.gate, d.hidden, d.width);
  layer.up = matrix(names.up, d.hidden, d.width);
  layer.down = matrix(names.down, d.width, d.hidden);
  return layer;
}

void Tower::read_steps(const TowerTensors& tensors, const std::vector<RowStep>& steps,
                       int64_t width, std::vector<StepWeights>& weights) const {
  using Kind = RowStep::Kind;
  for (const RowStep& step : steps) {
    StepWeights& w = weights.emplace_back();
    if (step.kind == Kind::rms_norm || step.kind == Kind::layer_norm) {
      w.norm = read_norm(tensors, step.name, step.kind == Kind::rms_norm, width, step.eps);
      for (float& gain : w.norm.gain)
        gain += step.gain_offset;
    } else if (step.kind == Kind::merge) {
      width *= step.side * step.side;
    } else if (step.kind == Kind::product && !step.turned) {
      w.matrix = tensors.matrix(step.name, step.width, width, step.bias);
    } else if (step.kind == Kind::product) {
      const std::vector<float> stored = tensors.values(step.name, {width, step.width});
      std::vector<float> turned(stored.size());
      for (int64_t r = 0; r < width; ++r) {
        for (int64_t c = 0; c < step.width; ++c)
          turned[static_cast<size_t>(c * width + r)] =
              stored[static_cast<size_t>(r * step.width + c)];
      }
      w.matrix = float_matrix(std::move(turned), step.width, width);
    }
    if (step.kind == Kind::product) width = step.width;
  }
}

void Tower::normalize(const Norm& norm, const Rows& x, Rows& out, ThreadPool& pool) const {
  pool.for_ranges(x.count(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (norm.bias.empty()) {
        ops().rms_norm(x.row(i), norm.gain.data(), x.width, norm.eps, out.row(i));
      } else {
        layer_norm(x.row(i), norm.gain, norm.bias, norm.eps, out.row(i));
      }
    }
  });
}

// Returns cosines and sines for every row, with the shape [count][2][head_dim / 2].
std::vector<float> Tower::find_angles(const Rows& x) const {
  if (desc_.rope_theta == 0) return {};
  const int64_t dim = desc_.head_dim(), quarter = dim / 4, half = dim / 2;
  std::vector<float> angles(static_cast<size_t>(x.count() * dim));
  for (int64_t i = 0; i < half; ++i) {
    const bool columns = i >= quarter;
    const auto exponent =
        static_cast<double>(4 * (i % quarter) + (columns ? desc_.column_shift : 0));
    const double frequency = std::pow(desc_.rope_theta, -exponent / static_cast<double>(dim));
    for (int64_t row = 0; row < x.count(); ++row) {
      const int64_t position = columns ? row % x.columns : row / x.columns;
      const double angle = static_cast<double>(position) * frequency;
      float* to = angles.data() + row * dim + i;
      to[0] = static_cast<float>(std::cos(angle));
      to[half] = static_cast<float>(std::sin(angle));
    }
  }
  return angles;
}

void Tower::add_positions(Rows& x) const {
  const int64_t side = desc_.table_side;
  if (side == 0) return;
  const auto entry = [&](int64_t row, int64_t column) {
    return table_.data() + (row * side + column) * desc_.width;
  };
  for (int64_t r = 0; r < x.rows; ++r) {
    const Place row = desc_.interpolated ? place_of(r, x.rows, side) : Place{r, r, 0};
    for (int64_t c = 0; c < x.columns; ++c) {
      const Place column = desc_.interpolated ? place_of(c, x.columns, side) : Place{c, c, 0};
      const float *a = entry(row.first, column.first), *b = entry(row.first, column.second),
                  *d = entry(row.second, column.first), *e = entry(row.second, column.second);
      const float up = 1 - row.share, left = 1 - column.share;
      float* to = x.row(r * x.columns + c);
      for (int64_t i = 0; i < x.width; ++i)
        to[i] += a[i] * (up * left) + b[i] * (up * column.share) + d[i] * (row.share * left) +
                 e[i] * (row.share * column.share);
    }
  }
}

void Tower::run_layer(const Layer& layer, Rows& x, std::span<const float> angles,
                      ThreadPool& pool) const {
  const int64_t width = desc_.width, dim = desc_.head_dim();
  Rows input(x.rows, x.columns, width), heads(x.rows, x.columns, 3 * width);
  normalize(layer.norm1, x, input, pool);
  for (size_t i = 0; i < layer.qkv.size(); ++i)
    multiply(layer.qkv[i], input, heads.values.data() + static_cast<int64_t>(i) * width, 3 * width,
             pool);
  if (!angles.empty()) {
    // Heads of queries and keys are neighbours.
    pool.for_ranges(x.count(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const float* cos = angles.data() + i * dim;
        ops().rope(heads.row(i), static_cast<int>(2 * desc_.heads), static_cast<int>(dim),
                   static_cast<int>(dim), cos, cos + dim / 2);
      }
    });
  }
  const float* q = heads.values.data();
  attend({x.count(), desc_.heads, dim, q, q + width, q + 2 * width, 3 * width, input.values.data()},
         pool);
  Rows branch(x.rows, x.columns, width);
  multiply(layer.out, input, branch.values.data(), width, pool);
  add_rows(branch, x, pool);
  normalize(layer.norm2, x, input, pool);
  feed_forward(layer, input, x, pool);
}

void Tower::feed_forward(const Layer& layer, const Rows& input, Rows& x, ThreadPool& pool) const {
  const bool gated = layer.gate.weights.format != nullptr;
  Rows hidden(x.rows, x.columns, desc_.hidden), up;
  multiply(gated ? layer.gate : layer.up, input, hidden.values.data(), desc_.hidden, pool);
  if (gated) {
    up = Rows(x.rows, x.columns, desc_.hidden);
    multiply(layer.up, input, up.values.data(), desc_.hidden, pool);
  }
  pool.for_ranges(x.count(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      activate(desc_.activation, hidden.row(i), gated ? up.row(i) : nullptr, desc_.hidden);
  });
  Rows branch(x.rows, x.columns, desc_.width);
  multiply(layer.down, hidden, branch.values.data(), desc_.width, pool);
  add_rows(branch, x, pool);
}

Rows Tower::run_steps(const std::vector<RowStep>& steps, const std::vector<StepWeights>& weights,
                      Rows x, ThreadPool& pool) const {
  using Kind = RowStep::Kind;
  for (size_t i = 0; i < steps.size(); ++i) {
    const RowStep& step = steps[i];
    switch (step.kind) {
      case Kind::rms_norm:
      case Kind::layer_norm:
        normalize(weights[i].norm, x, x, pool);
        break;
      case Kind::activate:
        pool.for_ranges(x.count(), 1, [&](int64_t begin, int64_t end) {
          for (int64_t row = begin; row < end; ++row)
            activate(step.activation, x.row(row), nullptr, x.width);
        });
        break;
      case Kind::merge:
        x = merge(x, step.side, step.by_channel);
        break;
      case Kind::average:
        x = average(x, step.side);
        break;
      case Kind::product: {
        Rows y(x.rows, x.columns, step.width);
        multiply(weights[i].matrix, x, y.values.data(), y.width, pool);
        x = std::move(y);
        break;
      }
    }
  }
  return x;
}

Rows Tower::run(const Rows& patches, ThreadPool& pool) const {
  Rows x(patches.rows, patches.columns, desc_.width);
  multiply(patches_, patches, x.values.data(), x.width, pool);
  add_positions(x);
  x = run_steps(desc_.before, before_, std::move(x), pool);
  const std::vector<float> angles = find_angles(x);
  std::vector<Rows> more;
  for (size_t i = 0; i < layers_.size(); ++i) {
    run_layer(layers_[i], x, angles, pool);
    for (size_t b = 0; b < branches_.size(); ++b)
      if (desc_.branches[b].layer == static_cast<int64_t>(i))
        more.push_back(run_steps(desc_.branches[b].steps, branches_[b], copy_of(x), pool));
  }
  x = run_steps(desc_.after, after_, std::move(x), pool);
  for (const Rows& rows : more)
    append(rows, x);
  return x;
}

}  // namespace walsh::vision
