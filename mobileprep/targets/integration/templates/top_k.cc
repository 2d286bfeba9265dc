std::vector<int> {{ class_name }}::TopK(const std::vector<float>& scores, int k) {
  std::vector<int> order(scores.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  const auto end = order.begin() + std::max(0, std::min(k, static_cast<int>(order.size())));
  // Of equal scores, the lower index is first.
  std::partial_sort(order.begin(), end, order.end(), [&](int a, int b) {
    return scores[a] > scores[b] || (scores[a] == scores[b] && a < b);
  });
  order.erase(end, order.end());
  return order;
}
