#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page in a real browser: what it shows, how fast, by keyboard, to a screen reader, in both languages and themes.

    page_browser_test.py STAGE [PICTURES] [-k PATTERN]

STAGE is the program page_stage. A picture of each view goes to the folder PICTURES. Ends with 77 where there is no Chromium.
"""

import json
import pathlib
import subprocess
import sys
import unittest

import browser

STAGE = sys.argv[1] if len(sys.argv) > 1 else ""
PICTURES = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 and not sys.argv[2].startswith("-") else "page-pictures")
VIEWS = ("map", "nodes", "waiting", "health", "quotas", "locks")
SECOND = 1000


class Stage:
    def __init__(self, nodes, cards, token=""):
        words = [STAGE, str(nodes), str(cards)] + ([token] if token else [])
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.url = f"http://127.0.0.1:{int(self.process.stdout.readline())}/"

    def do(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "ok\n", line

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=20)
        self.process.stdout.close()


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        PICTURES.mkdir(parents=True, exist_ok=True)
        cls.tab = browser.Browser(browser.find())

    @classmethod
    def tearDownClass(cls):
        cls.tab.close()

    def setUp(self):
        # The page before asks a server that has gone.
        self.tab.send("Page.navigate", url="about:blank")
        self.tab.wait("location.href === 'about:blank'")
        self.tab.emulate()
        self.tab.events.clear()

    def stage(self, nodes=12, cards=8, token=""):
        stage = Stage(nodes, cards, token)
        self.addCleanup(stage.close)
        return stage

    def figure(self, key):
        return self.tab.run(f"document.querySelector('[data-figure={key}] b')?.textContent")

    def until(self, key, value):
        self.tab.wait(f"document.querySelector('[data-figure={key}] b')?.textContent === {json.dumps(value)}")

    def go(self, view, node):
        """To a view, with a card's details beside it."""
        self.tab.run(f"location.hash = 'view={view}&node={node}&card=0'")
        self.tab.wait(f"document.getElementById('tab-{view}').ariaSelected === 'true'")
        self.tab.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def unfold(self):
        """The reasons of the pod that waits."""
        self.tab.wait("document.querySelector('details') !== null")
        self.tab.run("document.querySelector('details summary').click()")
        self.tab.wait("document.querySelectorAll('details section').length === 2")

    def complaints(self):
        """What the browser complained of: scripts, policies, requests."""
        list_of = []
        for event in self.tab.events:
            if event["method"] == "Runtime.exceptionThrown":
                list_of.append(event["params"]["exceptionDetails"].get("exception", {}).get("description", "exception"))
            if event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] in ("error", "warning"):
                list_of.append(event["params"]["entry"]["text"])
        return list_of

    def test_a_large_cluster_is_there_within_a_second(self):
        stage = self.stage(1000, 8)
        best = None
        for _ in range(5):  # others may use the machine
            self.tab.send("Page.navigate", url="about:blank")
            self.tab.open(stage.url)
            # From the start of the navigation to the first frame with the cluster in it.
            took = self.tab.run("new Promise(d => requestAnimationFrame(() => d(performance.now())))")
            best = took if best is None else min(best, took)
            if best < SECOND:
                break
        print(f"1,000 nodes with 8,000 cards are there after {best:.0f} ms")
        self.assertEqual(self.figure("nodes"), "1,000")
        self.assertEqual(self.figure("cards"), "8,000")
        self.tab.picture(PICTURES / "large.png")
        self.assertLess(best, SECOND)
        # The table holds the rows in sight alone, and says how many there are.
        self.tab.run("document.getElementById('tab-nodes').click()")
        self.assertLess(self.tab.run("document.querySelectorAll('.rows .row').length"), 80)
        self.assertEqual(self.tab.run("document.querySelector('[role=table]').ariaRowCount"), "1001")
        # A change of one node is one node's message.
        before = self.tab.run("document.documentElement.dataset.ready")
        stage.do("sick node-500 3")
        self.until("sick", "1")
        size = self.tab.run(f"fetch('v1/state?since={before}').then(a => a.text()).then(t => t.length)")
        self.assertLess(size, 20_000)
        self.tab.picture(PICTURES / "large-nodes.png")

    def test_changes_come_without_a_reload(self):
        stage = self.stage()
        self.tab.open(stage.url)
        self.tab.run("window.mark = 1")
        stage.do("sick node-2 1")
        self.until("sick", "1")
        stage.do("well node-2 1")
        self.until("sick", "0")
        pods = int(self.figure("pods"))
        stage.do("pod node-3 0 newcomer 2048")
        self.until("pods", str(pods + 1))
        stage.do("wait big 1/8 CardInsufficientMemory, 7/8 CardTypeMismatch")
        self.until("waiting", "1")
        stage.do("settle big")
        self.until("waiting", "0")
        stage.do("gone node-12")
        self.until("nodes", "11")
        self.assertEqual(self.tab.run("window.mark"), 1)
        self.assertEqual(self.complaints(), [])

    def test_it_can_be_used_by_keyboard_alone(self):
        stage = self.stage()
        self.tab.open(stage.url)
        for _ in range(30):
            self.tab.key("Tab")
            if self.tab.run("document.activeElement.tagName") == "CANVAS":
                break
        live = "document.getElementById('live').textContent"
        self.assertIn("node-1, card 0", self.tab.run(live))
        self.tab.key("ArrowRight")
        self.assertIn("node-1, card 1", self.tab.run(live))
        self.tab.key("End")
        self.assertIn("node-12, card 1", self.tab.run(live))
        self.tab.picture(PICTURES / "map-keyboard.png")
        self.tab.key("Enter")
        self.assertIn("node-12", self.tab.run("document.getElementById('detail').innerText"))
        self.tab.key("Escape")
        self.assertTrue(self.tab.run("document.getElementById('detail').hidden"))
        self.assertEqual(self.tab.run("document.activeElement.tagName"), "CANVAS")
        self.tab.run("document.getElementById('tab-map').focus()")
        self.tab.key("ArrowRight")
        self.assertEqual(self.tab.run("document.activeElement.id"), "tab-nodes")
        self.tab.key("Tab")
        self.tab.key("Tab")
        self.tab.key("ArrowDown")
        self.tab.key("Enter")
        self.assertFalse(self.tab.run("document.getElementById('detail').hidden"))

    def test_a_screen_reader_has_a_name_for_everything(self):
        stage = self.stage()
        stage.do("wait big 8/8 CardInsufficientMemory")
        stage.do("lock node-1 train")
        self.tab.open(stage.url)
        for view in VIEWS:
            self.go(view, "node-3")
            tree = self.tab.tree()
            for role in ("button", "tab", "combobox", "searchbox", "table", "meter", "tablist", "tabpanel", "heading"):
                unnamed = [node for node in tree if node[0] == role and not node[1].strip()]
                self.assertEqual(unnamed, [], view)
            self.assertIn("status", [role for role, _ in tree], view)
            self.assertEqual(self.tab.run("document.documentElement.lang"), "en")

    def test_every_view_in_both_themes_and_languages(self):
        stage = self.stage()
        for line in ("sick node-2 1", "mig node-5 0", "lock node-4 train-0-0", "wait big 8/8 CardInsufficientMemory"):
            stage.do(line)
        for scheme, language in (("light", "en"), ("dark", "zh")):
            self.tab.emulate(scheme, language)
            self.tab.open(f"{stage.url}?{scheme}")
            for view in VIEWS:
                self.go(view, "node-5")
                if view == "waiting":
                    self.unfold()
                self.assertEqual(self.tab.run("document.documentElement.dataset.theme"), scheme)
                self.assertEqual(self.tab.run("document.documentElement.lang"), {"en": "en", "zh": "zh-CN"}[language])
                overflow = self.tab.run("document.documentElement.scrollWidth - innerWidth")
                self.assertLessEqual(overflow, 0, view)
                self.tab.picture(PICTURES / f"{view}-{scheme}-{language}.png")
            self.tab.run("document.getElementById('detail').scrollTop = 1e6")
            self.tab.picture(PICTURES / f"card-{scheme}-{language}.png")
            slices = "[...document.querySelectorAll('.mig .taken')].map(b => b.style.gridColumn).join(' | ')"
            self.assertEqual(self.tab.run(slices), "1 / span 4 | 7 / span 1")
        self.assertEqual(self.complaints(), [])

    def text(self, selector):
        return self.tab.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def test_a_cards_tenants_use_against_limit_over_the_hour(self):
        stage = self.stage()
        for line in ("use node-5", "leave node-5 train-0-1", "pod node-5 0 quiet 1024"):
            stage.do(line)
        for scheme, language in (("light", "en"), ("dark", "zh")):
            self.tab.emulate(scheme, language)
            self.tab.open(f"{stage.url}?{scheme}#view=map&node=node-5&card=0")
            self.tab.wait("document.querySelectorAll('.tenant svg.plot .used').length > 0")
            self.tab.run("document.querySelector('.tenant').scrollIntoView()")
            self.tab.picture(PICTURES / f"use-{scheme}-{language}.png")
        self.tab.emulate()
        self.tab.open(f"{stage.url}?w#view=map&node=node-5&card=0")
        self.tab.wait("document.querySelectorAll('.tenant').length === 3")
        names = self.tab.run("[...document.querySelectorAll('.tenant h4')].map(h => h.innerText)")
        since = self.tab.run("document.querySelector('.tenant svg.plot').getAttribute('aria-label').match(/at (..:..)/)[1]")
        self.assertEqual(names, [f"team-a/train-0-0 · main · no sample since {since}",
                                 "team-a/train-0-1 · main · not here any more", "team-a/train-0-2 · main"])  # fmt: skip
        self.assertIn("team-a/quiet: nothing is known of its use", self.text("#detail"))
        # The picture says what it shows, and the same is there as a table.
        label = self.tab.run("document.querySelector('.tenant svg.plot').getAttribute('aria-label')")
        self.assertRegex(label, r"^Memory of team-a/train-0-0 · main over the last hour: [\d.]+ GiB of 20 GiB \(\d+ %\) at \d\d:\d\d, at most")
        images = [name for role, name in self.tab.tree() if role == "image"]
        self.assertIn(label, images)
        self.assertEqual([name for name in images if not name], [])
        # A limit that was changed is a step: more than one level.
        steps = "document.querySelectorAll('.tenant')[1].querySelector('.limit').getAttribute('points')"
        self.assertEqual(len({point.split(",")[1] for point in self.tab.run(steps).split()}), 2)
        self.tab.run("document.querySelector('.tenant summary').focus()")
        self.tab.key("Enter")
        self.tab.wait("document.querySelector('.tenant table') !== null")
        self.assertEqual(self.tab.run("document.querySelectorAll('.tenant table')[0].tBodies[0].rows.length"), 30)
        # What comes next is shown without a reload, and what was unfolded and focused stays so.
        stage.do("uses node-5 0 train-0-2 20480")
        self.tab.wait("document.querySelectorAll('.tenant')[2].innerText.includes('20 GiB of 20 GiB (100 %)')", 20)
        self.assertTrue(self.tab.run("document.querySelector('.tenant details').open"))
        self.assertEqual(self.tab.run("document.querySelectorAll('.tenant table')[0].tBodies[0].rows.length"), 30)
        self.assertEqual(self.tab.run("document.activeElement.tagName"), "SUMMARY")
        self.assertEqual(self.complaints(), [])

    def test_a_monitor_that_is_silent_is_told(self):
        stage = self.stage(2, 2)
        stage.do("use node-1")
        stage.do("silent node-1 hami-monitor does not answer: connection refused <b>")
        self.tab.open(f"{stage.url}?m#view=map&node=node-1&card=1")
        self.tab.wait("document.querySelectorAll('.tenant').length > 0")
        self.assertIn("No new figures: hami-monitor does not answer: connection refused <b>. Last answer:", self.text("#detail"))

    def test_the_health_of_cards_is_a_line_over_the_hour(self):
        stage = self.stage(3, 4)
        self.tab.open(f"{stage.url}?h#view=health")
        self.assertIn("nothing happened to any card", self.text("#panel"))
        for line in ("clock 600", "sick node-2 1"):
            stage.do(line)
        self.until("sick", "1")
        for line in ("clock 900", "well node-2 1", "sick node-3 0"):
            stage.do(line)
        self.until("sick", "1")
        self.tab.wait("document.querySelectorAll('.strips svg').length === 2")
        stage.do("clock 1200")
        stage.do("sick node-1 3")
        self.tab.wait("document.querySelectorAll('.strips svg').length === 3")
        bands = lambda uuid: self.tab.run(  # noqa: E731
            f"[...document.querySelector('[data-card={json.dumps(uuid)}] svg').children].map(b =>"
            " [b.getAttribute('class'), Math.round(b.getAttribute('x')), Math.round(b.getAttribute('width'))].join(' '))"
        )
        # The scheduler looks since 45 minutes; 900 s are a quarter of the picture.
        near = lambda got, wanted: self.assertTrue(  # noqa: E731
            len(got) == len(wanted) and all(
                g.split()[0] == w[0] and abs(int(g.split()[1]) - w[1]) < 15 and abs(int(g.split()[2]) - w[2]) < 15
                for g, w in zip(got, wanted)), got)
        near(bands("GPU-2-1"), [("unknown", 0, 250), ("good", 250, 167), ("bad", 417, 250), ("good", 667, 333)])
        near(bands("GPU-3-0"), [("unknown", 0, 250), ("good", 250, 417), ("bad", 667, 333)])
        label = self.tab.run("document.querySelector('[data-card=\"GPU-2-1\"] svg').getAttribute('aria-label')")
        self.assertRegex(label, r"^node-2 · Card 1: \d\d:\d\d not known, \d\d:\d\d healthy, \d\d:\d\d unhealthy, \d\d:\d\d healthy$")
        for scheme, language in (("light", "en"), ("dark", "zh")):
            self.tab.emulate(scheme, language)
            self.tab.open(f"{stage.url}?{scheme}#view=health&node=node-2&card=1")
            self.tab.wait("document.querySelectorAll('.strips svg').length === 3")
            self.tab.picture(PICTURES / f"health-line-{scheme}-{language}.png")
        self.tab.run("document.getElementById('detail').scrollTop = 1e6")
        self.tab.picture(PICTURES / "health-card-dark-zh.png")
        self.assertEqual(self.complaints(), [])

    def test_text_can_be_read_against_its_ground(self):
        stage = self.stage(1)
        self.tab.open(stage.url)
        for theme in ("light", "dark"):
            self.tab.run(f"document.documentElement.dataset.theme = '{theme}'")
            colour = lambda name: self.tab.run(  # noqa: E731
                f"getComputedStyle(document.documentElement).getPropertyValue('--{name}').trim()"
            )
            for name in ("text", "dim", "accent", "good", "warn", "bad"):
                for ground in ("back", "raised"):
                    self.assertGreaterEqual(contrast(colour(name), colour(ground)), 4.5, f"{theme}: {name} on {ground}")

    def test_both_languages_say_everything(self):
        stage = self.stage(1)
        self.tab.open(stage.url)
        keys = self.tab.run("import('/text.js').then(m => Object.values(m.texts).map(t => Object.keys(t).sort().join()))")
        self.assertEqual(keys[0], keys[1])
        holes = self.tab.run(
            "import('/text.js').then(m => Object.keys(m.texts.en).filter(k =>"
            " [...m.texts.en[k].matchAll(/{.}/g)].length !== [...m.texts.zh[k].matchAll(/{.}/g)].length))"
        )
        self.assertEqual(holes, [])

    def test_what_others_wrote_stays_text_and_nothing_comes_from_elsewhere(self):
        stage = self.stage(2, 1)
        stage.do("wait <img/src=x/onerror=window.hit=1> <script>window.hit=1</script><b>bold</b>")
        stage.do("pod node-1 0 <img/src=x/onerror=window.hit=1> 10")
        self.tab.open(f"{stage.url}?x#view=waiting&node=node-1&card=0")
        self.unfold()
        self.tab.wait("document.getElementById('detail').innerText.includes('<img/src')")
        self.assertIn("<script>window.hit=1</script>", self.tab.run("document.getElementById('panel').innerText"))
        self.assertEqual(self.tab.run("document.querySelectorAll('img, main b b, main script').length"), 0)
        self.assertIsNone(self.tab.run("window.hit"))
        asked = [e["params"]["request"]["url"] for e in self.tab.events if e["method"] == "Network.requestWillBeSent"]
        self.assertTrue(asked)
        self.assertEqual([url for url in asked if not url.startswith(stage.url)], [])
        # A script of the page itself cannot be made of text either.
        self.tab.run("document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.hit = 2'}))")
        self.assertIsNone(self.tab.run("window.hit"))

    def test_search_finds_pods_and_cards(self):
        stage = self.stage()
        stage.do("pod node-7 2 needle 100")
        self.tab.open(f"{stage.url}?s#view=nodes&find=needle")
        rows = "[...document.querySelectorAll('.rows .row')].map(r => r.firstChild.textContent).join()"
        self.tab.wait(f"{rows} === 'node-7'")
        self.tab.run("location.hash = 'view=nodes&find=nothing-like-it'")
        self.tab.wait("document.querySelector('#panel .empty') !== null")

    def test_a_reader_without_a_token_is_asked_for_it(self):
        stage = self.stage(2, 1, "secret")
        self.tab.send("Page.navigate", url=stage.url)
        self.tab.wait("document.getElementById('login')?.open")
        self.tab.picture(PICTURES / "login.png")
        for token in ("wrong", "secret"):
            self.tab.run(f"document.getElementById('token').value = '{token}'")
            self.tab.run("document.querySelector('#login button').click()")
            if token == "wrong":
                self.tab.wait("document.getElementById('login-error').textContent.startsWith('401')")
        self.until("nodes", "2")
        self.assertEqual(self.tab.run("JSON.stringify(Object.values(localStorage)).includes('secret')"), False)

    def test_a_server_that_goes_is_told_and_found_again(self):
        stage = Stage(2, 1)
        self.tab.open(stage.url)
        stage.close()
        self.tab.wait("document.getElementById('status').className === 'bad'", 30)


def contrast(one, other):
    """WCAG's ratio of two #rrggbb."""

    def light(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    if browser.find() is None:
        print("no chromium: the page was not looked at (apt-get install chromium, or tools/setup)")
        sys.exit(77)
    rest = [word for word in sys.argv[2:] if word != str(PICTURES)]
    unittest.main(argv=[sys.argv[0], *rest])
