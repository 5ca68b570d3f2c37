//! Drawings: ratios by work, shares, and lines, as SVG. Names stand beside the plot, and ticks where there
//! are data. `caches` draws by it, and the figures of `kvilt-bench-compare`.

use std::{error::Error, ops::Range, path::Path};

use anyhow::{Result, anyhow};
use plotters::{
    coord::{
        Shift,
        ranged1d::{DefaultFormatting, KeyPointHint},
    },
    prelude::*,
};

/// Something to look at.
pub enum Drawing {
    /// Bars on a linear scale with a line at one: how many times as much Kvilt makes as each other store, by
    /// work.
    Ratios {
        /// Our store.
        ours: &'static str,
        /// What is compared.
        unit: &'static str,
        /// The other stores' names.
        series: Vec<String>,
        /// The works.
        groups: Vec<Group>,
    },
    /// Stacked bars: parts of a whole.
    Shares {
        /// What is divided.
        unit: &'static str,
        /// The parts' names.
        series: Vec<String>,
        /// A bar's name, and its parts in percent.
        groups: Vec<(String, Vec<Option<f64>>)>,
    },
    /// Lines.
    Lines {
        /// What is on the horizontal axis.
        across: &'static str,
        /// What is on the other.
        unit: &'static str,
        /// Whether the horizontal axis doubles with each step.
        doubles: bool,
        /// The lines.
        lines: Vec<Line>,
    },
    /// Figures that are better read than seen.
    Table {
        /// What stands above the columns.
        head: Vec<String>,
        /// The rows.
        rows: Vec<Vec<String>>,
    },
}

/// One work of a [`Drawing::Ratios`].
pub struct Group {
    /// The work's name.
    pub name: String,
    /// Kvilt's own figure.
    pub ours: Option<f64>,
    /// For each series its figure, which a paper may not tell, and the ratio.
    pub bars: Vec<Option<(Option<f64>, Ratio)>>,
}

/// Kvilt's figure over another's: of their medians, and of Kvilt's least and greatest run over the other's
/// median.
#[derive(Clone, Copy, Debug)]
pub struct Ratio {
    /// Of our least run.
    pub least: f64,
    /// Of the medians.
    pub median: f64,
    /// Of our greatest run.
    pub most: f64,
}

/// One line of a [`Drawing::Lines`].
pub struct Line {
    /// What stands beside it.
    pub name: String,
    /// Lines of one work have one colour.
    pub colour: usize,
    /// The other store's are dashed, where lines of two stores are drawn.
    pub is_dashed: bool,
    /// Across and up.
    pub points: Vec<(f64, f64)>,
}

const SIZE: (u32, u32) = (960, 420);
/// Room for names to the right, in pixels.
const NAMES_WIDTH: u32 = 190;
/// Colours that those who cannot tell red from green can tell apart; Kvilt's first.
const COLOURS: [RGBColor; 9] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
    RGBColor(130, 50, 0),
    RGBColor(120, 60, 100),
];
/// Ratios above this are cut off, and written at the top: a single large one would flatten the others.
const RATIO_MAX: f64 = 10.0;
const GRID: RGBColor = RGBColor(220, 220, 220);
/// More ticks than this are not set one for each value.
const TICKS_MAX: usize = 8;

type Outcome = Result<(), Box<dyn Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

impl Drawing {
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        match self {
            Drawing::Ratios { groups, .. } => {
                groups.iter().all(|group| group.bars.iter().all(Option::is_none))
            }
            Drawing::Shares { groups, .. } => {
                groups.iter().all(|(_, parts)| parts.iter().all(Option::is_none))
            }
            Drawing::Lines { lines, .. } => lines.iter().all(|line| line.points.is_empty()),
            Drawing::Table { rows, .. } => rows.is_empty(),
        }
    }

    /// Draws it. A table is none.
    pub fn draw(&self, title: &str, path: &Path) -> Result<()> {
        let outcome = match self {
            Drawing::Ratios { unit, series, groups, .. } => draw_ratios(title, unit, series, groups, path),
            Drawing::Shares { unit, series, groups } => draw_shares(title, unit, series, groups, path),
            Drawing::Lines { across, unit, doubles, lines } => {
                draw_lines(title, (across, unit), *doubles, lines, path)
            }
            Drawing::Table { .. } => Ok(()),
        };
        outcome.map_err(|error| anyhow!("{}: {error}", path.display()))
    }
}

fn colour(place: usize) -> RGBColor {
    COLOURS[place % COLOURS.len()]
}

/// A white sheet with its title, in a part for the plot and one for names.
fn sheet<'a>(title: &str, path: &'a Path) -> Result<(Area<'a>, Area<'a>), Box<dyn Error>> {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let below = root.titled(title, ("sans-serif", 18))?;
    Ok(below.split_horizontally(SIZE.0 - NAMES_WIDTH))
}

/// Names with their colours, from the top down; lines of dashes where something is dashed.
fn draw_names(area: &Area<'_>, names: &[(String, RGBColor, bool)]) -> Outcome {
    for (place, (name, colour, is_dashed)) in names.iter().enumerate() {
        let y = 24 + 20 * place as i32;
        if *is_dashed {
            for left in [4, 12] {
                area.draw(&Rectangle::new([(left, y + 1), (left + 5, y + 3)], colour.filled()))?;
            }
        } else {
            area.draw(&Rectangle::new([(4, y), (18, y + 4)], colour.filled()))?;
        }
        area.draw(&Text::new(name.clone(), (26, y - 5), ("sans-serif", 13)))?;
    }
    Ok(())
}

/// A horizontal axis with ticks at given places.
struct Axis {
    range: Range<f64>,
    ticks: Vec<f64>,
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let part = (value - self.range.start) / (self.range.end - self.range.start);
        limit.0 + (f64::from(limit.1 - limit.0) * part).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

/// The middles of groups, in the order in which they are drawn.
fn middles(groups: usize) -> Vec<f64> {
    (0..groups).map(|group| group as f64 + 0.5).collect()
}

fn draw_ratios(title: &str, unit: &str, series: &[String], groups: &[Group], path: &Path) -> Outcome {
    let (plot, names) = sheet(title, path)?;
    let all = groups.iter().flat_map(|group| group.bars.iter().flatten());
    let top = (all.map(|(_, ratio)| ratio.most).fold(1.0, f64::max) * 1.05).min(RATIO_MAX);
    let width = groups.len() as f64;
    let mut chart = ChartBuilder::on(&plot)
        .margin(8)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(Axis { range: 0.0..width, ticks: middles(groups.len()) }, 0.0..top)?;
    let name = |place: &f64| groups.get(*place as usize).map_or(String::new(), |group| group.name.clone());
    let mut mesh = chart.configure_mesh();
    mesh.disable_x_mesh().bold_line_style(GRID).light_line_style(WHITE).x_labels(groups.len());
    mesh.x_label_style(("sans-serif", 9));
    mesh.x_label_formatter(&name).y_label_formatter(&|figure| short(*figure)).y_desc(unit).draw()?;
    let step = 0.8 / series.len().max(1) as f64;
    for place in 0..series.len() {
        for (group, bars) in groups.iter().enumerate().map(|(group, all)| (group, &all.bars)) {
            let Some((_, ratio)) = bars.get(place).copied().flatten() else { continue };
            let left = group as f64 + 0.1 + step * place as f64;
            let right = left + step * 0.88;
            let middle = f64::midpoint(left, right);
            let height = ratio.median.min(top);
            chart
                .draw_series([Rectangle::new([(left, 0.0), (right, height)], colour(place + 1).filled())])?;
            if ratio.median > top {
                let text = (short(ratio.median), (middle - 0.9, top * 0.97), ("sans-serif", 13));
                chart.draw_series([Text::new(text.0, text.1, text.2)])?;
                continue;
            }
            let ends = [(middle, ratio.least), (middle, ratio.most.min(top))];
            chart.draw_series([PathElement::new(ends, BLACK.stroke_width(1))])?;
        }
    }
    chart.draw_series([PathElement::new([(0.0, 1.0), (width, 1.0)], BLACK.stroke_width(1))])?;
    let beside =
        series.iter().enumerate().map(|(place, name)| (format!("over {name}"), colour(place + 1), false));
    draw_names(&names, &beside.collect::<Vec<_>>())?;
    plot.present()?;
    Ok(())
}

fn draw_shares(
    title: &str,
    unit: &str,
    series: &[String],
    groups: &[(String, Vec<Option<f64>>)],
    path: &Path,
) -> Outcome {
    let (plot, names) = sheet(title, path)?;
    let width = groups.len() as f64;
    let mut chart = ChartBuilder::on(&plot)
        .margin(8)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(Axis { range: 0.0..width, ticks: middles(groups.len()) }, 0.0..100.0)?;
    let name = |place: &f64| groups.get(*place as usize).map_or(String::new(), |(name, _)| name.clone());
    let mut mesh = chart.configure_mesh();
    mesh.disable_x_mesh().bold_line_style(GRID).light_line_style(WHITE).x_labels(groups.len());
    mesh.x_label_formatter(&name).y_desc(unit).draw()?;
    for (group, (_, parts)) in groups.iter().enumerate() {
        let (left, mut bottom) = (group as f64 + 0.2, 0.0);
        for (place, part) in parts.iter().enumerate() {
            let top = bottom + part.unwrap_or(0.0);
            chart
                .draw_series([Rectangle::new([(left, bottom), (left + 0.6, top)], colour(place).filled())])?;
            bottom = top;
        }
    }
    let beside = series.iter().enumerate().map(|(place, name)| (name.clone(), colour(place), false));
    draw_names(&names, &beside.collect::<Vec<_>>())?;
    plot.present()?;
    Ok(())
}

/// The values across, each once, ascending.
pub fn values_across(lines: &[Line]) -> Vec<f64> {
    let mut values: Vec<f64> = lines.iter().flat_map(|line| line.points.iter().map(|(x, _)| *x)).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}

fn draw_lines(
    title: &str,
    (across, unit): (&str, &str),
    doubles: bool,
    lines: &[Line],
    path: &Path,
) -> Outcome {
    let (plot, names) = sheet(title, path)?;
    let scale = |x: f64| if doubles { x.log2() } else { x };
    let unscale = |x: f64| if doubles { x.exp2() } else { x };
    let values: Vec<f64> = values_across(lines).into_iter().map(scale).collect();
    let (first, last) = (values.first().copied().unwrap_or(0.0), values.last().copied().unwrap_or(1.0));
    let room = ((last - first) * 0.03).max(1e-9);
    let top = lines.iter().flat_map(|line| line.points.iter().map(|(_, y)| *y)).fold(1e-9, f64::max) * 1.1;
    let ticks = if values.len() <= TICKS_MAX { values } else { every_tenth(&(first..last)) };
    let count = ticks.len();
    let mut chart = ChartBuilder::on(&plot)
        .margin(8)
        .x_label_area_size(40)
        .y_label_area_size(72)
        .build_cartesian_2d(Axis { range: first - room..last + room, ticks }, 0.0..top)?;
    let mut mesh = chart.configure_mesh();
    mesh.disable_x_mesh().bold_line_style(GRID).light_line_style(WHITE).x_labels(count);
    mesh.x_desc(across).y_desc(unit).y_label_formatter(&|figure| short(*figure));
    mesh.x_label_formatter(&|figure| tick(unscale(*figure))).draw()?;
    if unit.contains(" / ") {
        chart.draw_series([PathElement::new([(first, 1.0), (last, 1.0)], BLACK.stroke_width(1))])?;
    }
    for line in lines {
        let style = colour(line.colour).stroke_width(2);
        let points = line.points.iter().map(|(x, y)| (scale(*x), *y));
        if line.is_dashed {
            chart.draw_series(DashedLineSeries::new(points, 5, 4, style))?;
        } else {
            chart.draw_series(LineSeries::new(points, style).point_size(2))?;
        }
    }
    let beside = lines.iter().filter(|line| !line.points.is_empty());
    let beside = beside.map(|line| (line.name.clone(), colour(line.colour), line.is_dashed));
    draw_names(&names, &beside.collect::<Vec<_>>())?;
    plot.present()?;
    Ok(())
}

/// Multiples of ten, or of as many more as few ticks need.
fn every_tenth(range: &Range<f64>) -> Vec<f64> {
    let step = ((range.end - range.start) / 60.0).ceil().max(1.0) * 10.0;
    let multiples = (0..).map(|count| f64::from(count) * step);
    multiples.skip_while(|tick| *tick < range.start).take_while(|tick| *tick <= range.end).collect()
}

/// A value on the horizontal axis: as it is.
pub fn tick(value: f64) -> String {
    let rounded = (value * 100.0).round() / 100.0;
    format!("{rounded}")
}

/// A figure in few characters.
pub fn short(figure: f64) -> String {
    match figure.abs() {
        large if large >= 10e6 => format!("{:.0}M", figure / 1e6),
        large if large >= 1e6 => format!("{:.1}M", figure / 1e6),
        large if large >= 10e3 => format!("{:.0}k", figure / 1e3),
        large if large >= 1e3 => format!("{:.1}k", figure / 1e3),
        large if large >= 100.0 => format!("{figure:.0}"),
        middling if middling >= 10.0 => format!("{figure:.1}"),
        0.0 => "0".into(),
        _ => format!("{figure:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kinds_are_drawn_whatever_is_missing() {
        let directory = tempfile::tempdir().unwrap();
        let names = || vec!["rocksdb".to_owned(), "lmdb".to_owned()];
        let ratio = Ratio { least: 3.5, median: 4.0, most: 4.2 };
        let group = |name: &str, bars| Group { name: name.to_owned(), ours: Some(1e6), bars };
        let line =
            |name: &str, is_dashed, points| Line { name: name.to_owned(), colour: 0, is_dashed, points };
        let lines = vec![
            line("kvilt", false, vec![(1.0, 5.0), (16.0, 7.0)]),
            line("rocksdb", true, vec![(4.0, 5.0)]),
            line("none", false, vec![]),
        ];
        let drawings = [
            Drawing::Ratios {
                ours: "kvilt",
                unit: "Kvilt / other",
                series: names(),
                groups: vec![
                    group("C", vec![Some((Some(2.5e5), ratio)), None]),
                    group("P", vec![None, None]),
                ],
            },
            Drawing::Shares {
                unit: "% of gets",
                series: names(),
                groups: vec![("A".to_owned(), vec![Some(90.0), None])],
            },
            Drawing::Lines { across: "s", unit: "a / b", doubles: true, lines },
        ];
        for (place, drawing) in drawings.iter().enumerate() {
            let path = directory.path().join(format!("{place}.svg"));
            assert!(!drawing.is_empty());
            drawing.draw("a title", &path).unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(
                text.starts_with("<svg") && text.contains("a title") && text.contains("rocksdb"),
                "{text}"
            );
        }
    }

    #[test]
    fn ticks_are_the_data_or_few() {
        assert_eq!([1.0, 16.0, 0.99, 2f64.log2().exp2()].map(tick), ["1", "16", "0.99", "2"]);
        assert_eq!(every_tenth(&(1.0..47.0)), [10.0, 20.0, 30.0, 40.0]);
        assert_eq!(every_tenth(&(1.0..130.0)).len(), 4);
    }

    #[test]
    fn figures_are_short() {
        assert_eq!(
            [0.0, 0.25, 12.34, 123.4, 1234.0, 45_678.0, 1.2e6, 3.4e7].map(short),
            ["0", "0.25", "12.3", "123", "1.2k", "46k", "1.2M", "34M"]
        );
    }
}
