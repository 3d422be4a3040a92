import * as dash from './node_modules/@grafana/schema/dist/types/raw/dashboard/x/types.gen';
import * as timeseries from './node_modules/@grafana/schema/dist/types/raw/composable/timeseries/panelcfg/x/types.gen';
import * as trend from './node_modules/@grafana/schema/dist/types/raw/composable/trend/panelcfg/x/types.gen';
import * as heatmap from './node_modules/@grafana/schema/dist/types/raw/composable/heatmap/panelcfg/x/types.gen';
import * as stat from './node_modules/@grafana/schema/dist/types/raw/composable/stat/panelcfg/x/types.gen';
import * as table from './node_modules/@grafana/schema/dist/types/raw/composable/table/panelcfg/x/types.gen';
import * as timeline from './node_modules/@grafana/schema/dist/types/raw/composable/statetimeline/panelcfg/x/types.gen';
import * as barchart from './node_modules/@grafana/schema/dist/types/raw/composable/barchart/panelcfg/x/types.gen';
import * as xychart from './node_modules/@grafana/schema/dist/types/raw/composable/xychart/panelcfg/x/types.gen';

interface Target { refId: string; datasource: dash.DataSourceRef; editorMode: 'code'; expr: string; legendFormat: string; format: 'time_series' | 'table'; instant: boolean; range: boolean }
type Of<T extends string, O, C> = Omit<dash.Panel, 'type' | 'options' | 'fieldConfig' | 'targets'> & {
  type: T; options: O; targets: Target[];
  fieldConfig: Omit<dash.FieldConfigSource, 'defaults'> & { defaults: Omit<dash.FieldConfig, 'custom'> & { custom?: Partial<C> } };
};
type AnyPanel =
  | (dash.RowPanel & { type: 'row' })
  | Of<'timeseries', timeseries.Options, timeseries.FieldConfig>
  | Of<'trend', trend.Options, trend.FieldConfig>
  | Of<'heatmap', heatmap.Options, heatmap.FieldConfig>
  | Of<'stat', stat.Options, {}>
  | Of<'table', table.Options, table.FieldConfig>
  | Of<'state-timeline', timeline.Options, timeline.FieldConfig>
  | Of<'barchart', barchart.Options, barchart.FieldConfig>
  | Of<'xychart', xychart.Options, xychart.FieldConfig>;
// What the data source plugin adds to an annotation, and how a query variable of it is written, the types leave open.
type Annotation = dash.AnnotationQuery | (dash.AnnotationQuery & { expr: string; step: string; titleFormat: string; textFormat: string; useValueForTime: boolean });
type Variable = Omit<dash.VariableModel, 'query'> & { definition?: string; query: string | { query: string; refId: string; qryType: number } };
export type Grafana = Omit<dash.Dashboard, 'panels' | 'annotations' | 'templating'> & {
  panels: AnyPanel[]; annotations: { list: Annotation[] }; templating: { list: Variable[] };
};
