// The cell of lltm.py in C++: c' = c + elu(g) s(u), h' = tanh(c') s(o), and its gradients by the chain rule.
#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/elu_backward.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tanh_backward.h>
#include <torch/library.h>

using at::Tensor;

std::vector<Tensor> ahead(
    const Tensor& x, const Tensor& h, const Tensor& c, const Tensor& weight, const Tensor& bias) {
  auto both = at::cat({h, x}, 1);
  auto gates = at::addmm(bias, both, weight.t()).chunk(3, 1);
  auto update = at::sigmoid(gates[0]), output = at::sigmoid(gates[1]), candidate = at::elu(gates[2]);
  auto older = c + candidate * update;
  auto shown = at::tanh(older);
  return {shown * output, older, both, update, output, candidate, shown};
}

std::vector<Tensor> back(
    const Tensor& dh, const Tensor& dc, const Tensor& both, const Tensor& update, const Tensor& output,
    const Tensor& candidate, const Tensor& shown, const Tensor& weight) {
  auto inner = dc + at::tanh_backward(dh * output, shown);
  auto gates = at::cat(
      {at::sigmoid_backward(inner * candidate, update), at::sigmoid_backward(dh * shown, output),
       at::elu_backward(inner * update, 1, 1, 1, /*is_result=*/true, candidate)},
      1);
  return {at::mm(gates, weight), inner, at::mm(gates.t(), both), at::sum(gates, {0})};
}

TORCH_LIBRARY(gobrrr_lltm, m) {
  m.def("ahead(Tensor x, Tensor h, Tensor c, Tensor weight, Tensor bias) -> Tensor[]", &ahead);
  m.def(
      "back(Tensor dh, Tensor dc, Tensor both, Tensor update, Tensor output, Tensor candidate, Tensor shown, "
      "Tensor weight) -> Tensor[]",
      &back);
}
