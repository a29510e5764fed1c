// SPDX-License-Identifier: Apache-2.0
//
// What the page says, in each language, and how it writes amounts and times. Reasons of the scheduler stay as they are:
// people search for them.

const english = {
  skip: 'Skip to content', search: 'Find a node, pod, GPU type or UUID', theme: 'Theme', themeAuto: 'as the system',
  themeLight: 'light', themeDark: 'dark', language: 'Language', summary: 'Summary', views: 'Views',
  detail: 'Details', close: 'Close', map: 'Map', nodes: 'Nodes', waiting: 'Waiting', health: 'Health',
  quotas: 'Quotas', locks: 'Locks', login: 'A token is needed', token: 'Token', loginGo: 'Show the cluster',
  loginWhy: 'Paste a bearer token whose user may get the nonResourceURL /v1/state, for example of ' +
    '`kubectl -n kube-system create token READER`. It stays in this tab.',
  connecting: 'Connecting…', live: 'live', lost: 'Connection lost, trying again: {0}',
  following: 'this replica does not lead: who waits is known by the leading one', incomplete: 'books are still being read',
  cards: 'Cards', memory: 'Memory given', cores: 'Cores given', shares: 'Shares', pods: 'Pods', sick: 'Not usable',
  node: 'Node', card: 'Card', pod: 'Pod', namespace: 'Namespace', state: 'State', type: 'Type', mode: 'Mode',
  free: 'free', given: 'given away', unhealthy: 'unhealthy', cordoned: 'cordoned', unusable: 'books disagree',
  healthy: 'healthy', locked: 'locked', lock: 'Lock', unreadable: 'a grant cannot be read', none: 'none',
  mapHelp: 'Map of {0} nodes and {1} cards. Arrow keys move from card to card, Enter shows the card. The view Nodes ' +
    'has the same as a table.',
  cardSays: '{0}, card {1}, {2}: {3} of {4} given, {5} % of cores, {6} shares, {7}', noCards: 'no cards',
  noNodes: 'No node has registered a card. hami-device-plugin registers them: look at its pods and at `hami doctor cluster`.',
  noMatch: 'Nothing matches.', nobodyWaits: 'No pod waits for a GPU.', noQuotas: 'No namespace holds or limits anything.',
  noLocks: 'No node is locked.', noEvents: 'Since this scheduler started, nothing happened to any card.',
  tenants: 'Pods on this card', noTenants: 'No pod holds a share of this card.', mig: 'MIG instances',
  waitsSince: 'waits {0}', tries: 'asked {0} times', reasons: 'Why not', onNodes: '{0} nodes', allNodes: 'Nodes',
  notKept: 'names of nodes are not kept', reason: 'Reason', resource: 'Resource', used: 'Used', limit: 'Limit',
  holder: 'Holder', since: 'Since', age: 'Age', time: 'Time', what: 'What', unknownHolder: 'names no pod',
  bound: 'bound', binding: 'being bound', placed: 'placed', added: 'added', gone: 'gone', uncordoned: 'back in use',
  timeLine: 'Health of cards over the last hour', quietHour: 'No card changed within the last hour.', unknown: 'not known',
  healthOverHour: 'Health over the last hour', useOverHour: 'Use against limit over the last hour',
  useNotAsked: 'What is used is not asked for: start hami-scheduler with --page-monitors.',
  useProblem: 'No new figures: {0}. Last answer: {1}.', useLeftOut: 'There is no room to keep {0} further shares of this node.',
  useUnknown: '{0}: nothing is known of its use, as before its first call of the driver.',
  useOfMemory: 'Memory of {0} over the last hour: {1} at {2}, at most {3}',
  useOfCores: 'GPU time of {0} over the last hour: {1} at {2}', noSampleSince: 'no sample since {0}',
  usedMemory: 'Memory', gpuTime: 'GPU time', ofLimit: '{0} of {1} ({2})', scaleTop: 'top: {0}', noLonger: 'not here any more',
  notKnown: 'not known', never: 'never', asTable: 'As a table, {0} samples', uuid: 'UUID', numa: 'NUMA node', shareLimit: '{0} of {1}',
  changed: '{0} nodes, {1} cards, {2} pods wait', days: '{0} d', hours: '{0} h', minutes: '{0} min', seconds: '{0} s',
};

const chinese = {
  skip: '跳到内容', search: '查找节点、Pod、GPU 型号或 UUID', theme: '主题', themeAuto: '跟随系统',
  themeLight: '浅色', themeDark: '深色', language: '语言', summary: '概览', views: '视图',
  detail: '详情', close: '关闭', map: '地图', nodes: '节点', waiting: '等待中', health: '健康',
  quotas: '配额', locks: '锁', login: '需要令牌', token: '令牌', loginGo: '显示集群',
  loginWhy: '请粘贴 bearer 令牌，其用户须能 get nonResourceURL /v1/state，例如用 ' +
    '`kubectl -n kube-system create token READER` 得到的令牌。它只保存在此标签页中。',
  connecting: '正在连接…', live: '实时', lost: '连接中断，正在重试：{0}',
  following: '此副本不是主副本：等待中的 Pod 由主副本掌握', incomplete: '账目仍在读取',
  cards: '卡', memory: '已分配显存', cores: '已分配算力', shares: '份额', pods: 'Pod', sick: '不可用',
  node: '节点', card: '卡', pod: 'Pod', namespace: '命名空间', state: '状态', type: '型号', mode: '模式',
  free: '空闲', given: '已分配', unhealthy: '不健康', cordoned: '已封锁', unusable: '账目不一致',
  healthy: '健康', locked: '已加锁', lock: '锁', unreadable: '有分配无法读取', none: '无',
  mapHelp: '{0} 个节点、{1} 张卡的地图。方向键在卡之间移动，回车显示该卡。“节点”视图以表格显示同样的内容。',
  cardSays: '{0}，卡 {1}，{2}：已分配 {3}，共 {4}，算力 {5} %，{6} 个份额，{7}', noCards: '没有卡',
  noNodes: '没有节点注册过卡。卡由 hami-device-plugin 注册：请查看其 Pod 以及 `hami doctor cluster`。',
  noMatch: '没有匹配项。', nobodyWaits: '没有 Pod 在等待 GPU。', noQuotas: '没有命名空间占用或限制资源。',
  noLocks: '没有节点被锁。', noEvents: '自调度器启动以来，没有任何卡发生变化。',
  tenants: '此卡上的 Pod', noTenants: '没有 Pod 占用此卡。', mig: 'MIG 实例',
  waitsSince: '已等待 {0}', tries: '已询问 {0} 次', reasons: '原因', onNodes: '{0} 个节点', allNodes: '节点',
  notKept: '未保留节点名', reason: '原因', resource: '资源', used: '已用', limit: '上限',
  holder: '持有者', since: '起始', age: '时长', time: '时间', what: '事件', unknownHolder: '未指明 Pod',
  bound: '已绑定', binding: '绑定中', placed: '已选定', added: '加入', gone: '消失', uncordoned: '恢复使用',
  timeLine: '最近一小时卡的健康状况', quietHour: '最近一小时没有卡发生变化。', unknown: '未知',
  healthOverHour: '最近一小时的健康状况', useOverHour: '最近一小时的用量与上限',
  useNotAsked: '未采集用量：请以 --page-monitors 启动 hami-scheduler。',
  useProblem: '没有新数据：{0}。最近一次回答：{1}。', useLeftOut: '此节点另有 {0} 个份额没有空间保留。',
  useUnknown: '{0}：用量未知，例如尚未首次调用驱动。',
  useOfMemory: '{0} 最近一小时的显存：{2} 时为 {1}，最高 {3}',
  useOfCores: '{0} 最近一小时的 GPU 时间：{2} 时为 {1}', noSampleSince: '自 {0} 起没有样本',
  usedMemory: '显存', gpuTime: 'GPU 时间', ofLimit: '{0} / {1}（{2}）', scaleTop: '顶端：{0}', noLonger: '已不在此卡上',
  notKnown: '未知', never: '从未', asTable: '以表格显示，{0} 个样本', uuid: 'UUID', numa: 'NUMA 节点', shareLimit: '{0} / {1}',
  changed: '{0} 个节点，{1} 张卡，{2} 个 Pod 等待', days: '{0} 天', hours: '{0} 小时', minutes: '{0} 分', seconds: '{0} 秒',
};

const all = {en: english, zh: chinese};
let words = english;
let language = 'en';

export const languages = Object.keys(all);
export const texts = all;

export function setLanguage(name) {
  language = name in all ? name : 'en';
  words = all[language];
}

// The text KEY with its {0}, {1}… filled in.
export function say(key, ...values) {
  const text = words[key] ?? english[key] ?? key;
  return text.replace(/\{(\d)\}/g, (whole, index) => String(values[Number(index)] ?? ''));
}

// MiB.
export function memory(mib) {
  if (mib < 1024) return `${mib} MiB`;
  const gib = mib / 1024;
  if (gib < 1024) return `${number(gib, gib < 100 ? 1 : 0)} GiB`;
  return `${number(gib / 1024, 1)} TiB`;
}

export function number(value, digits = 0) {
  return new Intl.NumberFormat(language, {maximumFractionDigits: digits}).format(value);
}

export function percent(part, whole) {
  return whole > 0 ? `${number((100 * part) / whole)} %` : '–';
}

export function moment(seconds) {
  return new Date(seconds * 1000).toLocaleString(language);
}

export function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString(language, {hour: '2-digit', minute: '2-digit', hourCycle: 'h23'});
}

export function span(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return say('seconds', whole);
  if (whole < 3600) return say('minutes', Math.floor(whole / 60));
  if (whole < 86400) return say('hours', Math.floor(whole / 3600));
  return say('days', Math.floor(whole / 86400));
}
