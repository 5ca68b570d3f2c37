//! Drawings: bars by group, and lines, as SVG.

use std::{error::Error, path::Path};

use anyhow::{Result, anyhow};
use plotters::prelude::*;

/// Something to look at.
pub(crate) enum Drawing {
    /// Groups of bars, one a series; on a scale of powers of ten if they differ that much.
    Bars {
        /// What the bars mean.
        unit: &'static str,
        /// The series' names.
        series: Vec<String>,
        /// A group's name, and its figure for each series.
        groups: Vec<(String, Vec<Option<f64>>)>,
    },
    /// Lines.
    Lines {
        /// What is on the horizontal axis.
        across: &'static str,
        /// What is on the other.
        unit: &'static str,
        /// A line's name, and its points.
        lines: Vec<(String, Vec<(f64, f64)>)>,
    },
    /// Figures that are better read than seen.
    Table {
        /// What stands above the columns.
        head: Vec<String>,
        /// The rows.
        rows: Vec<Vec<String>>,
    },
}

const SIZE: (u32, u32) = (960, 420);
/// Colours that those who cannot tell red from green can tell apart; Kvilt's first.
const COLOURS: [RGBColor; 12] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
    RGBColor(200, 180, 30),
    RGBColor(0, 60, 100),
    RGBColor(130, 50, 0),
    RGBColor(0, 90, 60),
    RGBColor(120, 60, 100),
];

impl Drawing {
    /// Whether there is nothing in it.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Drawing::Bars { groups, .. } => groups.iter().all(|(_, bars)| bars.iter().all(Option::is_none)),
            Drawing::Lines { lines, .. } => lines.iter().all(|(_, points)| points.is_empty()),
            Drawing::Table { rows, .. } => rows.is_empty(),
        }
    }

    /// Draws it. A table is none.
    pub(crate) fn draw(&self, title: &str, path: &Path) -> Result<()> {
        let outcome = match self {
            Drawing::Bars { unit, series, groups } => bars(title, unit, series, groups, path),
            Drawing::Lines { across, unit, lines } => draw_lines(title, across, unit, lines, path),
            Drawing::Table { .. } => Ok(()),
        };
        outcome.map_err(|error| anyhow!("{}: {error}", path.display()))
    }
}

fn bars(
    title: &str,
    unit: &str,
    series: &[String],
    groups: &[(String, Vec<Option<f64>>)],
    path: &Path,
) -> Result<(), Box<dyn Error>> {
    let all = || groups.iter().flat_map(|(_, bars)| bars.iter().flatten().copied()).filter(|bar| *bar > 0.0);
    let (most, least) = (all().fold(0.0, f64::max), all().fold(f64::MAX, f64::min));
    let bottom = if most > 30.0 * least { least / 2.0 } else { 0.0 };
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut builder = ChartBuilder::on(&root);
    builder.caption(title, ("sans-serif", 18)).margin(8).x_label_area_size(36).y_label_area_size(72);
    let width = groups.len() as f64;
    let names = |place: &f64| {
        let is_middle = (place.fract() - 0.5).abs() < 0.01;
        groups.get(*place as usize).filter(|_| is_middle).map_or(String::new(), |(name, _)| name.clone())
    };
    // One drawing for both scales; their types differ.
    macro_rules! draw_on {
        ($chart:expr) => {{
            let mut chart = $chart;
            let mut mesh = chart.configure_mesh();
            mesh.disable_x_mesh().x_labels(groups.len() * 2 + 1).x_label_formatter(&names);
            mesh.y_label_formatter(&|figure| short(*figure)).y_desc(unit).draw()?;
            for (place, name) in series.iter().enumerate() {
                let colour = COLOURS[place % COLOURS.len()];
                let bar = |(group, (_, bars)): (usize, &(String, Vec<Option<f64>>))| {
                    let height = bars.get(place).copied().flatten()?;
                    let step = 0.8 / series.len() as f64;
                    let left = group as f64 + 0.1 + step * place as f64;
                    Some(Rectangle::new([(left, bottom), (left + step * 0.92, height)], colour.filled()))
                };
                chart
                    .draw_series(groups.iter().enumerate().filter_map(bar))?
                    .label(name.as_str())
                    .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
            }
            let mut labels = chart.configure_series_labels();
            labels.background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3));
            labels.position(SeriesLabelPosition::UpperRight).draw()?;
        }};
    }
    if bottom > 0.0 {
        draw_on!(builder.build_cartesian_2d(0.0..width, (bottom..most * 2.0).log_scale())?);
    } else {
        draw_on!(builder.build_cartesian_2d(0.0..width, 0.0..most.max(1e-9) * 1.15)?);
    }
    root.present()?;
    Ok(())
}

fn draw_lines(
    title: &str,
    across: &str,
    unit: &str,
    lines: &[(String, Vec<(f64, f64)>)],
    path: &Path,
) -> Result<(), Box<dyn Error>> {
    let points = || lines.iter().flat_map(|(_, points)| points.iter().copied());
    let right = points().map(|(x, _)| x).fold(1e-9, f64::max);
    let left = points().map(|(x, _)| x).fold(right, f64::min).min(right * 0.999);
    let top = points().map(|(_, y)| y).fold(1e-9, f64::max) * 1.1;
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 18))
        .margin(8)
        .x_label_area_size(40)
        .y_label_area_size(72)
        // To the right is room for the names.
        .build_cartesian_2d(left..right + (right - left) * 0.25, 0.0..top)?;
    let mut mesh = chart.configure_mesh();
    mesh.x_desc(across).y_desc(unit).y_label_formatter(&|figure| short(*figure));
    mesh.x_label_formatter(&|figure| short(*figure)).draw()?;
    for (place, (name, points)) in lines.iter().enumerate() {
        let colour = COLOURS[place % COLOURS.len()];
        let line = LineSeries::new(points.iter().copied(), colour.stroke_width(2)).point_size(2);
        chart
            .draw_series(line)?
            .label(name.as_str())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 12, y)], colour.stroke_width(2)));
    }
    let mut labels = chart.configure_series_labels();
    labels.background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3));
    labels.position(SeriesLabelPosition::LowerRight).draw()?;
    root.present()?;
    Ok(())
}

/// A figure in few characters.
pub(crate) fn short(figure: f64) -> String {
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
    fn both_kinds_are_drawn_whatever_is_missing() {
        let directory = tempfile::tempdir().unwrap();
        let names = vec!["kvilt".to_owned(), "rocksdb".to_owned()];
        let groups =
            vec![("C".to_owned(), vec![Some(1e6), Some(3e5)]), ("E100".to_owned(), vec![Some(9e3), None])];
        let line = ("kvilt".to_owned(), vec![(0.0, 5.0), (1.0, 7.0)]);
        let alone = ("rocksdb".to_owned(), vec![(0.5, 5.0)]);
        let drawings = [
            Drawing::Bars { unit: "operations a second", series: names, groups },
            Drawing::Lines {
                across: "s",
                unit: "1/s",
                lines: vec![line, alone, ("none".to_owned(), vec![])],
            },
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
    fn figures_are_short() {
        assert_eq!(
            [0.0, 0.25, 12.34, 123.4, 1234.0, 45_678.0, 1.2e6, 3.4e7].map(short),
            ["0", "0.25", "12.3", "123", "1.2k", "46k", "1.2M", "34M"]
        );
    }
}
