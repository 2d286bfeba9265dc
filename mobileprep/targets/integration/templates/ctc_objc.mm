
+ (NSArray<NSArray<NSArray<NSNumber *> *> *> *)decode:(const float *)logits
                                                count:(int)count
{% if not ctc.fixed_lengths %}
                                              lengths:(NSArray<NSNumber *> *)lengths
{% endif %}
                                               scores:(NSArray<NSArray<NSNumber *> *> **)scores {
  const std::vector<float> values(logits, logits + count);
{% if not ctc.fixed_lengths %}
  std::vector<int> steps;
  for (NSNumber *length in lengths) steps.push_back([length intValue]);
{% endif %}
  NSMutableArray *labelsOfEntries = [NSMutableArray array];
  NSMutableArray *scoresOfEntries = [NSMutableArray array];
  for (const auto &paths : Model::Decode(values{% if not ctc.fixed_lengths %}, steps{% endif %})) {
    NSMutableArray *labelsOfPaths = [NSMutableArray array];
    NSMutableArray *scoresOfPaths = [NSMutableArray array];
    for (const auto &path : paths) {
      NSMutableArray<NSNumber *> *labels = [NSMutableArray array];
      for (const int label : path.labels) [labels addObject:@(label)];
      [labelsOfPaths addObject:labels];
      [scoresOfPaths addObject:@(path.score)];
    }
    [labelsOfEntries addObject:labelsOfPaths];
    [scoresOfEntries addObject:scoresOfPaths];
  }
  if (scores != NULL) *scores = scoresOfEntries;
  return labelsOfEntries;
}
