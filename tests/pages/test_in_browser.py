"""What only a browser shows: links on a fresh server, clicks on charts, what text looks like."""

import os
import re
from urllib.parse import quote

import pytest

from tests import browser
from tests.server import serve

PATH = browser.find()
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        PATH is None and not os.environ.get("CLOZE_REQUIRE_BROWSER"),
        reason="no browser on this machine",
    ),
]
WAIT = 60_000  # milliseconds: the first page loads torch and the model
PAGES = [
    "Home",
    "Bidirectional context",
    "Masking strategy",
    "Predicting [MASK]",
    "Pre-training loss",
    "Fine-tuning",
    "Contextual embeddings",
    "Sentences and corpora",
]
PATHS = [
    "",
    "Bidirectional_context",
    "Masking_strategy",
    "Predicting_mask",
    "Pretraining_loss",
    "Finetuning",
    "Contextual_embeddings",
    "Sentences_and_corpora",
]
HOSTILE = "<img src=x onerror=alert(1)> </span><b> &lt; $5 and $6 *not* :red[y] `#` 1."


@pytest.fixture(scope="module")
def chromium():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=PATH, args=browser.ARGUMENTS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    with serve(folder / "log.txt", CLOZE_RUNS=str(folder / "runs")) as running:
        yield running


@pytest.fixture
def tab(chromium):
    context = chromium.new_context(viewport={"width": 1280, "height": 1600})
    page = context.new_page()
    page.set_default_timeout(WAIT)
    yield page
    context.close()


def settled(page):
    """Wait until the script has run to its end."""
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]")


def metric(page, label):
    box = page.locator("[data-testid=stMetric]", has_text=label).first
    return box.locator("[data-testid=stMetricValue]").inner_text().strip("\u2068\u2069 \n")


def wait_for_true_token(page, token):
    """The address changes in the browser before the script that it stands for has begun to run."""
    box = page.locator("[data-testid=stMetric]", has_text="True token").first
    box.get_by_text(token, exact=False).wait_for()


def chips(page):
    return page.locator("[data-testid=stPills], [data-testid=stButtonGroup]").first


def test_a_link_to_page_3_is_whole_on_a_fresh_server(chromium, tmp_path):
    """First request of all: the page's script runs before the entry script ever did."""
    with serve(tmp_path / "log.txt") as fresh:
        page = chromium.new_page()
        page.set_default_timeout(WAIT)
        page.goto(f"{fresh.url}/Predicting_mask?p3_text=A+dog+sleeps+here&p3_position=1&p3_k=7")
        page.wait_for_selector("h1:has-text('Predicting [MASK]')")
        page.wait_for_selector("text=30,515 other tokens")
        settled(page)
        wait_for_true_token(page, "dog")
        assert metric(page, "True token") == "dog"
        assert page.locator("h1").count() == 1
        links = page.locator("[data-testid=stSidebarNavLink]").all_inner_texts()
        assert [link.split("\n")[-1] for link in links] == PAGES
        assert page.locator("[data-testid=stSidebar] [data-testid=stSelectbox]").count() == 1
        page.close()
    log = fresh.log.read_text()
    assert "Traceback" not in log
    assert "torch.classes" not in log
    assert "Warning" not in log


def test_chip_slider_and_address_move_together(server, tab):
    tab.goto(f"{server.url}/Predicting_mask")
    chips(tab).get_by_text("warm").click()
    tab.wait_for_function("location.search.includes('p3_position=5')")
    settled(tab)
    wait_for_true_token(tab, "warm")
    assert metric(tab, "True token") == "warm"
    slider = tab.get_by_role("slider", name="Hidden position")
    slider.press("ArrowRight")
    tab.wait_for_function("location.search.includes('p3_position=6')")
    settled(tab)
    wait_for_true_token(tab, "mat")
    assert metric(tab, "True token") == "mat"
    address = tab.url
    tab.goto("about:blank")
    tab.goto(address)
    tab.wait_for_selector("text=other tokens share")
    settled(tab)
    wait_for_true_token(tab, "mat")
    assert metric(tab, "True token") == "mat"


def test_a_click_on_a_bar_hides_that_token(server, tab):
    tab.goto(f"{server.url}/Predicting_mask")
    tab.wait_for_selector("text=Pseudo-perplexity")
    settled(tab)
    chart = tab.locator("[data-testid=stVegaLiteChart]").nth(1)
    bar = chart.locator("path[aria-roledescription=bar]").first
    if bar.count():
        bar.click()
    else:  # drawn on a canvas: the first of seven bars stands at the left, on the axis
        box = chart.locator("canvas").bounding_box()
        tab.mouse.click(box["x"] + box["width"] * 0.16, box["y"] + box["height"] * 0.60)
    tab.wait_for_function("location.search.includes('p3_position=0')", timeout=15_000)
    settled(tab)
    wait_for_true_token(tab, "the")
    assert metric(tab, "True token") == "the"


def test_hostile_text_is_shown_as_typed(server, tab):
    alerts = []
    tab.on("dialog", lambda dialog: (alerts.append(dialog.message), dialog.dismiss()))
    tab.goto(f"{server.url}/Predicting_mask?p3_text={quote(HOSTILE)}")
    tab.wait_for_selector("text=other tokens share")
    settled(tab)
    shown = re.sub(r"[\u2068\u2069\s]", "", chips(tab).inner_text())
    assert HOSTILE.replace(" ", "") in shown
    assert tab.locator("img[src=x]").count() == 0
    assert alerts == []


def test_bad_input_leaves_the_page_usable(server, tab):
    tab.goto(f"{server.url}/Predicting_mask?p3_text=%20%20")
    tab.wait_for_selector("text=There is no text yet")
    box = tab.get_by_role("textbox", name="Text")
    box.fill("A dog ran to the [mask].")
    box.press("Control+Enter")
    tab.wait_for_selector("text=it is spelled [MASK]")
    tab.wait_for_selector("text=Mask 1")
    assert tab.locator("[data-testid=stException]").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_runs_over_the_edge_or_asks_another_host(server, chromium, scheme, width):
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.set_default_timeout(WAIT)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    for path in PATHS:
        page.goto(f"{server.url}/{path}")
        page.wait_for_selector("h1")
        settled(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        background = page.evaluate(
            "getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor"
        )
        brightness = sum(int(x) for x in re.findall(r"\d+", background)[:3]) / 3
        assert (brightness < 60) is (scheme == "dark")
    elsewhere = [url for url in asked if not url.startswith((server.url, "data:", "blob:"))]
    assert elsewhere == []
    context.close()


def start_training(page, url):
    """A long run of a small model; gives its address."""
    page.goto(f"{url}/Pretraining_loss?p4_view=Train+now&p4_scratch=true&p4_epochs=30")
    page.get_by_role("button", name="Train", exact=True).click()
    page.wait_for_function("location.search.includes('p4_run=')")
    page.wait_for_selector("text=/Step [0-9]+ of/")
    return page.url


def test_a_run_survives_refresh_and_is_stopped_from_another_tab(server, chromium, tab):
    address = start_training(tab, server.url)
    tab.reload()
    tab.wait_for_selector("text=/Step [0-9]+ of/")
    tab.goto(f"{server.url}/Predicting_mask")  # other pages answer while it trains
    tab.wait_for_selector("text=other tokens share")
    other = chromium.new_context().new_page()  # the browser closed, and reopened by its link
    other.set_default_timeout(WAIT)
    other.goto(address)
    other.wait_for_selector("text=/Step [0-9]+ of/")
    other.get_by_role("button", name="Stop", exact=True).click()
    other.wait_for_selector("text=Stopped after")
    other.wait_for_selector("text=Download the trained model")
    tab.goto(address)
    tab.wait_for_selector("text=Stopped after")
    other.context.close()


def test_a_killed_server_shows_the_run_as_interrupted(chromium, tmp_path):
    runs = str(tmp_path / "runs")
    page = chromium.new_page()
    page.set_default_timeout(WAIT)
    with serve(tmp_path / "log.txt", CLOZE_RUNS=runs) as first:
        address = start_training(page, first.url)
        page.wait_for_selector("text=/Step ([5-9]|[0-9]{2,}) of/")
        first.process.kill()
        first.process.wait()
    with serve(tmp_path / "log2.txt", CLOZE_RUNS=runs) as second:
        page.goto(address.replace(first.url, second.url))
        page.wait_for_selector("text=Its server ended when it was at step")
        page.wait_for_selector("text=Loss of each step")
        assert page.get_by_role("button", name="Train", exact=True).is_enabled()
    page.close()


def test_a_chart_is_saved_as_svg(server, tab):
    tab.goto(f"{server.url}/Predicting_mask?p3_position=2")
    tab.wait_for_selector("text=other tokens share")
    settled(tab)
    tab.get_by_role("button", name="Save charts").click()
    with tab.expect_download() as saving:
        tab.locator(
            "[data-testid=stPopoverBody] [data-testid=stDownloadButton] button"
        ).first.click()
    svg = saving.value.path().read_text(encoding="utf-8")
    assert saving.value.suggested_filename.endswith(".svg")
    assert svg.startswith("<svg")
    assert "\u2605" in svg  # the true token is marked


def test_a_cell_of_the_confusion_matrix_opens_its_rows(server, tab):
    tab.goto(f"{server.url}/Finetuning")
    tab.wait_for_selector("text=Worst mistakes")
    settled(tab)
    chart = tab.locator("[data-testid=stVegaLiteChart]").first
    chart.locator("path[aria-roledescription='rect mark']").first.click(force=True)
    tab.wait_for_selector("text=Rows of the cell")


def test_points_of_a_corpus_are_selected_by_box(server, tab):
    tab.goto(f"{server.url}/Sentences_and_corpora?p7_view=Corpus&p7_map=PCA")
    tab.get_by_role("button", name="Embed").click()
    plot = tab.locator(".js-plotly-plot")
    plot.wait_for()
    settled(tab)
    plot.locator(".modebar-btn[data-title='Box Select']").click(force=True)
    box = plot.bounding_box()
    tab.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + 60)
    tab.mouse.down()
    tab.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + 400, steps=5)
    tab.mouse.up()
    tab.wait_for_selector("text=Selected on the map")
